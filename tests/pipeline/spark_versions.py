"""Runs the compact suite of the Spark source on every Spark 4 but the one that is installed, each in an environment.

    python tests/pipeline/spark_versions.py [4.0.5 ...]

An environment under `.cache/spark/<version>` has that Spark; everything else it finds where this program runs. Spark is
450 MB for each version, fetched once. What cannot be fetched is said, and counts as a failure: who asks for this wants
to know.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "spark"
SUITE = "tests/pipeline/test_versions.py"
# The last patch release of each version.
VERSIONS = ("4.0.5", "4.1.4", "4.2.1")
_INSTALL_SECONDS = 3000
_SUITE_SECONDS = 3000
# Older versions leave sockets of `collect` to the garbage collector, which causes warnings of Python.
_TOLERATED = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")


def environment(version: str) -> Path:
    """The Python of an environment with a version of Spark; created if it does not exist."""
    home = CACHE / version
    python = home / "bin" / "python"
    ready = home / "ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        command = [str(python), "-m", "pip", "install", "--quiet", f"pyspark=={version}"]
        subprocess.run(command, check=True, timeout=_INSTALL_SECONDS)
        _lend_packages(python)
        ready.touch()
    return python


def _lend_packages(python: Path) -> None:
    """Everything but Spark comes from the environment of this program, including its links to source trees."""
    ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    lender = sysconfig.get_path("purelib")
    Path(own, "lent.pth").write_text(f"import site; site.addsitedir({lender!r})\n", encoding="utf-8")


def passes(version: str) -> bool:
    """Whether the suite passes on a version."""
    print(f"== Spark {version}", flush=True)
    try:
        python = environment(version)
        suite = [str(python), "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *_TOLERATED, SUITE]
        return subprocess.run(suite, cwd=ROOT, check=False, timeout=_SUITE_SECONDS).returncode == 0
    except (subprocess.SubprocessError, OSError) as error:
        print(f"Spark {version} could not be judged: {error}", flush=True)
        return False


def main() -> int:
    failed = [version for version in sys.argv[1:] or VERSIONS if not passes(version)]
    if failed:
        print(f"not green: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
