#pragma once
#include <cstdlib>
namespace distrun { inline int knob(const char* n,int d){ const char* v=std::getenv(n); return v?std::atoi(v):d; } inline bool g_quiet=false; inline bool g_chain=false; }
