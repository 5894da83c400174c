#!/usr/bin/env python3
"""The machine of test_emulated.sh: a CD with a kernel and the programs, run in Bochs.

The CD's initial file system holds the programs, their libraries and an init that runs one command
after another. The serial console goes to a file, which is followed from outside; a line of its own
after each command tells its exit status, and after the last one Bochs is ended.
"""

import argparse
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tty

# An emulated Skylake X: the most of AVX-512 whose state a current kernel accepts. Of what Bochs
# says about XSAVE the sizes of the compacted form and of the protection keys contradict each other,
# and a kernel that sees it turns all of AVX off; so these are hidden. The rest saves instructions:
# nothing to detect, nothing to wait for, a fast serial line.
CPU_MODEL = "corei7_skylake_x"
KERNEL_ARGUMENTS = (
    "console=ttyS0,115200 loglevel=1 panic=-1 clearcpuid=xsaves,xsavec,pku,ospke,mpx "
    "mitigations=off nopti nokaslr acpi=off pci=off nosmp noapic nolapic tsc=reliable lpj=100000"
)
MEMORY_MIB = 512
# Emulated instructions that pass as one second for the machine's clocks: low, so that waiting for a
# clock takes few of them.
INSTRUCTIONS_PER_SECOND = 20_000_000
STATUS_LINE = re.compile(r"^emulated-status (\d+)$")

EXIT_FAILED_RUN = 5

# Checkpoints with golden values: bf16 and 4-bit weights.
CHECKPOINTS = ("qwen3moe-a", "mixtral-gguf-q4_0")
EXIT_NO_HARDWARE = 4
# Tests that take long here and show nothing about instructions: of the self-test, which run on
# other levels, and of loops over rows and columns that the emulated vector type has as well.
LEFT_OUT = ("SelfTestOfALevel.*", "*LargeBatch*", "*RaggedBatch*", "*LongRows*")


class Archive:
    """A file system as the kernel unpacks it from memory (cpio, format newc)."""

    def __init__(self):
        self.entries = []
        self.names = set()

    def _append(self, name, mode, data=b"", device=(0, 0)):
        fields = (len(self.entries) + 1, mode, 0, 0, 1, 0, len(data), 0, 0, *device,
                  len(name) + 1, 0)
        entry = b"070701" + b"".join(b"%08X" % field for field in fields)
        entry += name.encode() + b"\0"
        entry += b"\0" * (-len(entry) % 4) + data
        self.entries.append(entry + b"\0" * (-len(entry) % 4))
        self.names.add(name)

    def directory(self, name):
        parent = os.path.dirname(name)
        if parent:
            self.directory(parent)
        if name not in self.names:
            self._append(name, 0o40755)

    def console(self):
        self._append("dev/console", 0o20600, device=(5, 1))

    def file(self, name, data):
        if name not in self.names:
            self.directory(os.path.dirname(name))
            self._append(name, 0o100755, data)

    def program(self, name, path):
        """With the shared libraries that it names, at their places here."""
        self.file(name, pathlib.Path(path).read_bytes())
        listing = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
        for library in re.findall(r"(/\S+) \(0x", listing.stdout):
            self.file(library.lstrip("/"), pathlib.Path(library).read_bytes())

    def tree(self, name, path):
        for at in sorted(pathlib.Path(path).rglob("*")):
            if at.is_file():
                self.file(f"{name}/{at.relative_to(path)}", at.read_bytes())

    def write(self, path):
        self._append("TRAILER!!!", 0)
        pathlib.Path(path).write_bytes(b"".join(self.entries))


def init_script(commands):
    lines = [
        "#!/bin/busybox sh",
        "/bin/busybox mount -t proc none /proc",
        "/bin/busybox mount -t sysfs none /sys",
        "/bin/busybox mount -t devtmpfs none /dev",
        "export PATH=/bin HOME=/tmp TERM=dumb GTEST_COLOR=no MOE_CPU_ISA=avx512",
        # The C library's lazy binding saves registers with the compacted XSAVE, whose size Bochs
        # understates: programs that call with upper halves in use would overrun their stack.
        "export LD_BIND_NOW=1",
    ]
    for command in commands:
        lines += [shlex.join(command), 'echo "emulated-status $?"']
    lines += ["/bin/busybox poweroff -f"]
    return "\n".join(lines) + "\n"


def write_cd(cache, archive, path):
    with tempfile.TemporaryDirectory(dir=cache) as name:
        root = pathlib.Path(name)
        boot = root / "isolinux"
        boot.mkdir()
        shutil.copy(cache / "vmlinuz", root / "vmlinuz")
        shutil.copy("/usr/lib/ISOLINUX/isolinux.bin", boot)
        shutil.copy("/usr/lib/syslinux/modules/bios/ldlinux.c32", boot)
        archive.write(root / "initrd")
        (boot / "isolinux.cfg").write_text(
            "default linux\nprompt 0\nlabel linux\nkernel /vmlinuz\n"
            f"append initrd=/initrd {KERNEL_ARGUMENTS}\n"
        )
        subprocess.run(
            ["xorriso", "-as", "mkisofs", "-quiet", "-o", path, "-b", "isolinux/isolinux.bin",
             "-c", "isolinux/boot.cat", "-no-emul-boot", "-boot-load-size", "4",
             "-boot-info-table", root],
            check=True, stderr=subprocess.DEVNULL)


def write_settings(cd, serial, log, path):
    path.write_text(
        "display_library: term\n"
        "romimage: file=/usr/share/bochs/BIOS-bochs-latest\n"
        "vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest\n"
        f"megs: {MEMORY_MIB}\n"
        f"cpu: model={CPU_MODEL}, ips={INSTRUCTIONS_PER_SECOND}, reset_on_triple_fault=0\n"
        "clock: sync=none\n"
        "ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14\n"
        f"ata0-master: type=cdrom, path={cd}, status=inserted\n"
        "boot: cdrom\n"
        f"com1: enabled=1, mode=file, dev={serial}\n"
        "speaker: enabled=0\n"
        f"log: {log}\n"
        "panic: action=fatal\nerror: action=ignore\ninfo: action=ignore\ndebug: action=ignore\n"
    )


def follow(machine, serial, commands, limit_s):
    """Prints the console. Statuses of the commands that ended within the limit."""
    statuses = []
    begin = time.monotonic()
    seen = 0
    text = b""
    while len(statuses) < len(commands) and time.monotonic() - begin < limit_s:
        has_ended = machine.poll() is not None
        data = serial.read_bytes() if serial.exists() else b""
        text += data[seen:]
        seen = len(data)
        *lines, text = text.split(b"\n")
        for line in lines:
            shown = line.decode(errors="replace").rstrip("\r")
            match = STATUS_LINE.match(shown)
            if match:
                statuses.append(int(match.group(1)))
                ended = shlex.join(commands[len(statuses) - 1])
                print(f"-- exit status {match.group(1)} of {ended}")
            else:
                print(shown)
            sys.stdout.flush()
            if "Kernel panic" in shown:
                return statuses
        if has_ended:
            break
        time.sleep(0.5)
    return statuses


def drain_screen(machine, output):
    """Reads what Bochs draws. Its display goes to a pseudo-terminal that it makes and names; when
    nobody reads that, it stops once the terminal's buffer is full."""
    for _ in range(100):
        match = re.search(r'connected to screen "([^"]+)"', output.read_text(errors="replace"))
        if match:
            break
        if machine.poll() is not None:
            return
        time.sleep(0.1)
    else:
        return  # another build of Bochs, which draws to its standard output
    screen = os.open(match.group(1), os.O_RDONLY | os.O_NOCTTY)
    tty.setraw(screen)

    def read_all():
        try:
            while os.read(screen, 65536):
                pass
        except OSError:  # Bochs has ended
            pass

    threading.Thread(target=read_all, daemon=True).start()


def run_machine(cache, archive, commands, limit_s):
    with tempfile.TemporaryDirectory(dir=cache) as name:
        place = pathlib.Path(name).resolve()
        write_cd(cache, archive, place / "cd.iso")
        write_settings(place / "cd.iso", place / "serial", place / "log", place / "bochsrc")
        # Debian's Bochs has its debugger built in, which waits for a command first.
        (place / "rc").write_text("continue\nquit\n")
        with open(place / "output", "wb") as output:
            machine = subprocess.Popen(
                ["bochs-bin", "-q", "-f", place / "bochsrc", "-rc", place / "rc"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                cwd=place, env={**os.environ, "TERM": "xterm"}, start_new_session=True)
        print("test_emulated: the emulated machine starts; its first line takes half a minute",
              file=sys.stderr)
        try:
            drain_screen(machine, place / "output")
            return follow(machine, place / "serial", commands, limit_s)
        finally:
            machine.kill()
            machine.wait()


def default_plan(build, archive):
    """Commands and the exit status that each must have."""
    archive.program("bin/kernels_test", build / "tests-bin/kernels_test")
    archive.program("bin/moe-bench", build / "bin/moe-bench")
    plan = [
        (["/bin/busybox", "grep", "-qw", "avx512vl", "/proc/cpuinfo"], 0),
        (["/bin/kernels_test", f"--gtest_filter=-{':'.join(LEFT_OUT)}"], 0),
    ]
    for name in CHECKPOINTS:
        archive.tree(f"checkpoints/{name}", pathlib.Path("scenarios/checkpoints") / name)
        plan.append((["/bin/moe-bench", "verify", f"/checkpoints/{name}", "--isa", "avx512",
                      "--threads", "1", "-q"], 0))
    # The processor lacks what this level needs, which must be noticed.
    plan.append((["/bin/moe-bench", "verify", f"/checkpoints/{CHECKPOINTS[0]}", "--isa",
                  "avx512_bf16", "-q"], EXIT_NO_HARDWARE))
    return plan


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--limit-s", type=float, required=True)
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()
    # So that Bochs is ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    archive = Archive()
    for name in ("dev", "proc", "sys", "tmp", "bin"):
        archive.directory(name)
    archive.console()
    archive.program("bin/busybox", options.cache / "bin/busybox")
    if options.command:
        if not os.access(options.command[0], os.X_OK):
            parser.error(f"{options.command[0]} is not a program")
        archive.program("bin/program", options.command[0])
        plan = [(["/bin/program", *options.command[1:]], 0)]
    else:
        plan = default_plan(options.build, archive)
    commands = [command for command, _ in plan]
    archive.file("init", init_script(commands).encode())

    statuses = run_machine(options.cache, archive, commands, options.limit_s)
    for (command, expected), status in zip(plan, statuses):
        if status != expected:
            print(f"test_emulated: {shlex.join(command)} ended with {status}, not {expected}",
                  file=sys.stderr)
            return status if options.command else 1
    if len(statuses) < len(plan):
        print(f"test_emulated: the emulated machine ended after {len(statuses)} of {len(plan)} "
              "commands, or took too long", file=sys.stderr)
        return EXIT_FAILED_RUN
    print(f"test_emulated: all {len(plan)} commands ended as they should", file=sys.stderr)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
