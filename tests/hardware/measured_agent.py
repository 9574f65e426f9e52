"""The agent under measure: started as an unprivileged user, asked over HTTP, its cost read from /proc."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
READY_WITHIN = 40
UNPRIVILEGED = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


def workplace(wheels=None):
    """Return a new directory that the unprivileged agent may write, with the wheels unpacked in `site`."""
    work = Path(tempfile.mkdtemp(prefix="coldaisle-hardware-"))
    work.chmod(0o777)
    (work / "site").mkdir()
    for wheel in sorted(Path(wheels).glob("*.whl")) if wheels else ():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(work / "site")
    return work


class Agent:
    """One run of the agent. Exits the program with a reason if it does not become ready."""

    def __init__(self, work, log, port, *, record=None, dry=False):
        self.port = port
        self.recording = work / record if record else None
        config = work / "config.yaml"
        config.write_text(f"mode: observe\npaths: {{runtime: {work}/run, state: {work}/state}}\n")
        command = [sys.executable, "-m", "coldaisle", "run", "--mode", "observe", "--config", str(config)]
        command += ["--web.listen-address", f"127.0.0.1:{port}"]
        command += ["--record", str(self.recording)] if record else []
        command += ["--simulate", "dgx-h200", "--gpus", "1"] if dry else []
        if os.getuid() == 0 and not dry:
            command = [*UNPRIVILEGED, *command]
        path = os.pathsep.join([str(ROOT / "agent"), str(work / "site"), os.environ.get("PYTHONPATH", "")])
        # The unprivileged user may not write beside the sources; nothing is to be left there either.
        environment = {**os.environ, "PYTHONPATH": path, "HOME": str(work), "PYTHONDONTWRITEBYTECODE": "1"}
        started = time.monotonic()
        with Path(log).open("a") as file:
            self.process = subprocess.Popen(command, env=environment, stderr=file, stdout=file, cwd=work)
        while self.get("/readyz") is None:
            if self.process.poll() is not None or time.monotonic() - started > READY_WITHIN:
                self.process.kill()
                raise SystemExit(f"the agent did not become ready:\n{Path(log).read_text()[-2000:]}")
            time.sleep(0.02)
        self.ready_after = time.monotonic() - started

    def get(self, path):
        """Return a page's text, None if there is none. /health has one whatever its status."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=3) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode() if path == "/health" else None
        except OSError:
            return None

    def scrape(self):
        """Return (exposition or None, seconds it took)."""
        before = time.perf_counter()
        text = self.get("/metrics")
        return text, time.perf_counter() - before

    def processes(self):
        """Return {pid: role} of the agent and all that it started."""
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (stat := _stat(entry.name)):
                parents[int(entry.name)] = int(stat[1])
        ours = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= more
        return {pid: role for pid in ours if (role := _role(pid))}

    def cpu(self):
        """Return {role: CPU seconds so far}; what has ended counts with the one that waited for it."""
        ticks = os.sysconf("SC_CLK_TCK")
        total = {}
        for pid, role in self.processes().items():
            if stat := _stat(pid):
                total[role] = total.get(role, 0.0) + sum(int(item) for item in stat[11:15]) / ticks
        return total

    def memory(self):
        """Return {role: PSS in MiB}."""
        total = {}
        for pid, role in self.processes().items():
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:
                continue
            kilobytes = next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)
            total[role] = round(total.get(role, 0) + kilobytes / 1024, 1)
        return total

    def stop(self):
        """End it by SIGTERM; returns (exit code, seconds until the port was free, seconds until it had ended)."""
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        freed = code = None
        while time.monotonic() - start < 30 and (freed is None or code is None):
            if freed is None and port_is_free(self.port):
                freed = time.monotonic() - start
            code = self.process.poll()
            time.sleep(0.01)
        ended = time.monotonic() - start
        if code is None:
            self.process.kill()
        return code, freed, ended


def port_is_free(port):
    """Whether the port can be listened on as a server does."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _stat(pid):
    """Fields of /proc/PID/stat from the state on; None if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None


def _role(pid):
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return None
    return next((role for role in ("nvml_child", "reader", "simulator") if f"coldaisle.app.{role}" in words), "main")
