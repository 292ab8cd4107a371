"""The parts of bench/report: it measures, keeps the figures, draws plots of them and writes pages."""
