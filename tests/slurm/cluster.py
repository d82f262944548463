"""A real Slurm on this machine: munged, slurmctld and two slurmd in a temporary folder, and nothing elsewhere.

`python tests/slurm/cluster.py` brings it up for use by hand, until Ctrl-C. CPUs and GPUs are only claimed.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

NODES = ("node1", "node2")
CPUS, GPUS = 8, 4  # of each node
NEEDED = ("slurmctld", "slurmd", "sbatch", "munged", "unshare", "setpriv")
INSTALL = "apt-get install slurmctld slurmd slurm-client munge libpmix-dev"

# $0: the folder; arguments: the nodes. Each node has a name of its own: MPI tells nodes apart by it.
DAEMONS = """
munged --foreground --force --key-file="$0/munge/key" --socket="$0/munge/socket" \\
    --pid-file="$0/munge/pid" --log-file="$0/munge/log" --seed-file="$0/munge/seed" &
slurmctld -i -D &
for node; do
    inside='mount --bind "$0/hosts" /etc/hosts; hostname "$1"; exec slurmd -D -N "$1"'
    unshare --uts --mount --propagation=private bash -c "$inside" "$0" "$node" &
done
wait
"""


class NoCluster(Exception):
    """Why there can be no cluster here."""


class Cluster:
    """Slurm's daemons as children of this process; `stop` ends them, and the death of this process does.

    Partitions: `debug`, and `urgent`, whose jobs preempt those of `debug`: these get the signal that they asked for, and 60
    seconds before they are requeued.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str] = os.environ) -> None:
        missing = [name for name in NEEDED if shutil.which(name) is None]
        if missing:
            raise NoCluster(f"not installed: {', '.join(missing)} ({INSTALL})")
        if os.geteuid() != 0:
            raise NoCluster("only root can start nodes with host names of their own")
        self.folder = folder
        self._daemons: subprocess.Popen[bytes] | None = None
        self.environ = {**environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._configure()

    def start(self) -> None:
        """Start all daemons and wait until all nodes are idle; NoCluster with their logs if they don't come up."""
        (self.folder / "munge" / "key").touch(0o400)
        (self.folder / "munge" / "key").write_bytes(os.urandom(1024))
        # one space of process ids for all nodes: MPICH's UCX tells processes by their ids, and mixes up equal ones
        spaces = ("--mount", "--propagation=private", "--pid", "--fork", "--mount-proc", "--kill-child")
        with (self.folder / "daemons.log").open("ab") as log:
            self._daemons = subprocess.Popen(
                # a test run that is killed takes its cluster along
                ["setpriv", "--pdeathsig", "KILL", "unshare", *spaces, "bash", "-c", DAEMONS, self.folder, *NODES],
                env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            wait_until(lambda: self._states() == ["idle"] * len(NODES), 30, self.logs)
        except TimeoutError as error:
            self.stop()
            raise NoCluster(f"Slurm's nodes did not come up: {error}") from None

    def stop(self) -> None:
        """End the daemons and all jobs: all that the first process of their space has started ends with it."""
        if self._daemons is None:
            return
        first = Path(f"/proc/{self._daemons.pid}/task/{self._daemons.pid}/children").read_text().split()
        self._daemons.kill()
        self._daemons.wait()
        self._daemons = None
        wait_until(lambda: not any(Path("/proc", process).exists() for process in first), 20, lambda: f"{first} lives")

    def run(self, *command: object, seconds: float = 60, **options: object) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm's on this cluster."""
        options = {"env": self.environ, "capture_output": True, "text": True, "check": False, **options}
        return subprocess.run([*map(str, command)], timeout=seconds, **options)  # type: ignore[call-overload]

    def logs(self) -> str:
        """The end of each daemon's log."""
        ends = (
            f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in sorted(self.folder.glob("*.log"))
        )
        return "\n".join(ends)

    def _states(self) -> list[str]:
        return self.run("sinfo", "--noheader", "--Node", "--partition=debug", "--format=%T").stdout.split()

    def _configure(self) -> None:
        self.folder.chmod(0o755)
        for part in ("munge", "state", "devices", *(f"{kind}/{node}" for kind in ("spool", "tmp") for node in NODES)):
            (self.folder / part).mkdir(parents=True)
        (self.folder / "munge").chmod(0o700)
        for gpu in range(GPUS):  # Slurm insists on device files: clones of /dev/null
            os.mknod(self.folder / "devices" / f"nvidia{gpu}", 0o666 | 0o020000, os.makedev(1, 3))
        host = socket.gethostname().partition(".")[0]
        controller, *ports = free_ports(1 + len(NODES))
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} RealMemory=4000 Gres=gpu:{GPUS}"
            for node, port in zip(NODES, ports, strict=True)
        )
        listed = ",".join(NODES)
        (self.folder / "slurm.conf").write_text(f"""\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge/socket
CredType=cred/munge
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool/%n
# a folder a node: two nodes with one would share the sockets of srun --mpi=pmix
TmpFS={self.folder}/tmp/%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=0,batch_sched_delay=0
SlurmdParameters=config_overrides
SlurmctldParameters=preempt_send_user_signal
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
KillWait=5
GresTypes=gpu
{nodes}
PartitionName=debug Nodes={listed} Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=60
PartitionName=urgent Nodes={listed} MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
""")
        (self.folder / "gres.conf").write_text(
            f"NodeName={listed} Name=gpu File={self.folder}/devices/nvidia[0-{GPUS - 1}]\n"
        )
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        hosts = "".join(f"127.0.0.1 {node}\n" for node in NODES)
        (self.folder / "hosts").write_text(Path("/etc/hosts").read_text() + hosts)


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_until(done: Callable[[], bool], seconds: float, explain: Callable[[], str]) -> None:
    """Ask until it is done; TimeoutError with the explanation after so many seconds."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s\n{explain()}")
        time.sleep(0.1)


def main() -> int:
    """Bring a cluster up until this process is interrupted."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        try:
            cluster = Cluster(Path(folder))
            cluster.start()
        except NoCluster as error:
            print(f"cluster.py: {error}", file=sys.stderr)
            return 1
        print(f"export SLURM_CONF={folder}/slurm.conf", flush=True)
        for number in (signal.SIGINT, signal.SIGTERM):  # in a background job of a shell SIGINT would be ignored
            signal.signal(number, signal.default_int_handler)
        try:
            signal.pause()
        except KeyboardInterrupt:
            return 0
        finally:
            cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
