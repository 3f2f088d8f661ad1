"""What the tests of this folder stand on: Debian packages where this is root, PyPI and npm packages below target/operate.

A test names what it needs; what cannot be had is left out and counted, or fails the run with SEAWALL_CI=1.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "target/operate"
PYPI = ["playwright==1.65.2", "schemathesis==4.32.5", "PyYAML==6.0.3"]
NPM = ["axe-core@4.14.0"]


def left_out(what, why):
    """Ends a test that cannot run here."""
    print(f"left out: {what} ({why})")
    sys.exit(1 if os.environ.get("SEAWALL_CI") == "1" else 0)


def debian(what, program, *packages):
    """The path of a program, installed if that is possible."""
    if not shutil.which(program) and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing {' '.join(packages)}", flush=True)
        install = ["apt-get", "install", "-qq", "-y", "--no-remove", "--no-install-recommends", *packages]
        env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        if subprocess.run(install, env=env, capture_output=True).returncode:
            subprocess.run(["apt-get", "update", "-qq"], capture_output=True)
            subprocess.run(install, env=env, capture_output=True)
    return shutil.which(program) or left_out(what, f"{program} is missing; Debian packages: {' '.join(packages)}")


def own_python():
    """Goes on under the Python of target/operate, with its packages."""
    venv = HOME / "venv"
    if Path(sys.prefix) == venv:
        return
    python = venv / "bin/python"
    install(PYPI, [sys.executable, "-m", "venv", venv], [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PYPI])
    os.execv(python, [python, *sys.argv])


def axe(what):
    """The script of axe-core."""
    npm = shutil.which("npm") or left_out(what, "npm is missing")
    install(NPM, [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", HOME, *NPM])
    return (HOME / "node_modules/axe-core/axe.min.js").read_text()


def install(packages, *commands):
    """Installs packages, unless this was done to its end before."""
    name, wanted = packages[0].split("=")[0].split("@")[0], " ".join(packages)
    done = HOME / f"{name}.installed"
    if done.exists() and done.read_text() == wanted:
        return
    print(f"installing {wanted} into target/operate", flush=True)
    HOME.mkdir(parents=True, exist_ok=True)
    for command in commands:
        subprocess.run(command, check=True)
    done.write_text(wanted)
