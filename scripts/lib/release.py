"""The parts of scripts/release.

release.py check            prints why this tree cannot be released; exit code 1 if there is a reason
release.py version          prints the version of the tree
release.py write WHEEL      writes the wheel, its SBOM, the notes and the checksums into dist/release
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RELEASE = Path("dist/release")
# scripts/test writes here the commit that has passed.
PASSED = Path("build/test-results/passed-commit")
VERSION_LINES = {
    "pyproject.toml": r'^version = "([^"]+)"',
    "CMakeLists.txt": r"^project\(distrun VERSION (\S+)",
}


def git(*words: str, root: Path = ROOT) -> str:
    """Returns what git prints; "" if it fails."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def versions(root: Path = ROOT) -> dict[str, str]:
    """Returns the version that each file has; "" if it has none."""
    found = {}
    for name, line in VERSION_LINES.items():
        match = re.search(line, (root / name).read_text(), re.MULTILINE)
        found[name] = match[1] if match else ""
    return found


def sections(changelog: str) -> dict[str, str]:
    """Returns the text below each `## ` heading. The key is the heading's first word."""
    parts = re.split(r"^## +(\S+).*$", changelog, flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def git_faults(version: str, root: Path) -> list[str]:
    faults = []
    if changed := git("status", "--porcelain", root=root):
        faults.append(f"the tree has changes that are not committed: {changed.splitlines()[0].split()[-1]}")
    branch = git("symbolic-ref", "--short", "HEAD", root=root)
    if branch != "main":
        faults.append(f"releases are made on the branch main, and this is {branch or 'no branch'}")
    if git("tag", "--list", f"v{version}", root=root):
        faults.append(f"the tag v{version} exists: raise the version in {' and '.join(VERSION_LINES)}")
    passed = (root / PASSED).read_text().strip() if (root / PASSED).exists() else ""
    if passed != git("rev-parse", "HEAD", root=root):
        faults.append("scripts/test has not passed for this commit: run it on the committed tree")
    return faults


def changelog_faults(version: str, text: str) -> list[str]:
    found = sections(text)
    faults = []
    if not found.get(version):
        faults.append(f"CHANGELOG.md has no entry for {version}: add the heading `## {version}`")
    if found.get("Unreleased"):
        faults.append("CHANGELOG.md has lines under Unreleased: move them below the heading of the version")
    return faults


def faults_of(root: Path = ROOT) -> list[str]:
    """Returns why the tree cannot be released, one sentence each."""
    found = versions(root)
    version = found["pyproject.toml"]
    faults = [f"{name} has no version" for name, value in found.items() if not value]
    if not faults and len(set(found.values())) > 1:
        faults.append("the versions differ: " + ", ".join(f"{name} has {value}" for name, value in found.items()))
    return faults + git_faults(version, root) + changelog_faults(version, (root / "CHANGELOG.md").read_text())


def sbom_of(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if re.search(r"\.dist-info/sboms/[^/]+\.cdx\.json$", name)]
        if len(names) != 1:
            raise SystemExit(f"release: {wheel.name} has {len(names)} SBOMs, expected 1")
        return archive.read(names[0])


def notes(version: str, entry: str, needs: str) -> str:
    """Returns the release notes: the entry of the changelog, and what the wheel needs."""
    lines = [f"# distrun {version}", "", entry, "", "## The wheel", ""]
    lines += [needs, "", "SHA256SUMS has the checksums of the files.", ""]
    lines += [f"Links in these notes are paths in the repository, at the tag `v{version}`.", ""]
    return "\n".join(lines)


def needs_of(wheel: Path, root: Path) -> str:
    """Returns the sentence of check_wheel.py about glibc."""
    command = [sys.executable, str(root / "scripts/check_wheel.py"), "--needs", str(wheel)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return said[:1].upper() + said[1:] + "."


def write(wheel: Path, root: Path = ROOT) -> list[Path]:
    """Writes dist/release and returns its files. An older folder is removed."""
    version = versions(root)["pyproject.toml"]
    if not wheel.name.startswith(f"distrun-{version}-"):
        raise SystemExit(f"release: {wheel.name} is not a wheel of version {version}")
    folder = root / RELEASE
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    entry = sections((root / "CHANGELOG.md").read_text())[version]
    files = [folder / wheel.name, folder / f"distrun-{version}.cdx.json", folder / f"distrun-{version}-notes.md"]
    shutil.copyfile(wheel, files[0])
    files[1].write_bytes(sbom_of(wheel))
    files[2].write_text(notes(version, entry, needs_of(wheel, root)))
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    files.append(folder / "SHA256SUMS")
    files[-1].write_text(sums)
    return files


def main(arguments: list[str]) -> int:
    if arguments == ["version"]:
        print(versions()["pyproject.toml"])
    elif arguments == ["check"]:
        faults = faults_of()
        for fault in faults:
            print(f"   {fault}")
        return 1 if faults else 0
    else:
        for file in write(Path(arguments[1]).resolve()):
            print(f"   {file.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
