"""A run from its start to its end, whatever becomes of its ranks: begun, continued, interrupted, survived."""

import time
from collections.abc import Callable, Sequence

import torch

from .algorithms.weights import checksum
from .assembly import Shard
from .checkpoints import from_block, to_block
from .comm import Comm
from .comm.guard import Unguarded
from .config import Config
from .errors import ConfigError, DisagreementError, Interrupted, LeftBehind, MpisignError, RankFailure
from .faults import Faults, parse_faults
from .resuming import Archive
from .session import Session
from .survival import Memory, Rounds, State, with_momentum
from .tracking import Metrics, Tracker

RECOVERY = 30.0
"""Seconds that ranks may take to find who is left after a failure; what takes longer hangs, and the job ends."""

REFILLS = 3
"""Attempts to start processes in the place of ranks that died; then the others go on without."""

_STOP = 1  # a rank's wish at an agreement


def train(
    comm: Comm,
    config: Config,
    tracker: Tracker | Callable[[bool], Tracker],
    guard: Unguarded | None = None,
    replacement: Sequence[str] = (),
) -> tuple[Metrics, torch.nn.Module]:
    """Train as `config` says, on all ranks together; return the run's figures and the model, the same on every rank.

    Where each rank has a model of its own, that is the mean of all; `test_accuracy` and `test_loss` are the means of the
    models', `test_accuracy_worst` the worst one's, `consensus_distance` the root mean square of ‖x_i − x̄‖. Else None.

    The figures' names and units: `seconds*` in seconds of this run without start-up, `bytes_sent` payload that a worker
    (the median rank, of two the one that sends less) sent in all steps, `bytes_sent_float32` the same with float32,
    `bytes_sent_most` the busiest rank's, `agreement` in [0, 1] or None, `agreement_by_rank` a list of such, `byzantine`
    the ranks that lie, `quarantined` {rank: step of its exclusion, from 0} or None, `quarantine_refuted` a step or None,
    `checksum` in hexadecimal, `ranks_left` those that did not die, `late` how many `deadlines` passed, in how many `seconds`,
    and by rank how many votes it `missed` and how often it `returns` (None without --quorum). With --quarantine,
    `agreement_by_rank` is what the server saw, else what each rank says of itself.

    Args:
        comm: the ranks. Where it is resilient, and some of them die, the others go on from the last state that all remember.
        config: the settings.
        tracker: shows and writes what comes of it; or a function that makes it, on the rank that is the first one, and is
            told whether a run is continued.
        guard: is told that a rank gets on, and says whether to stop; if any rank's does, all write a checkpoint after the
            same step.
        replacement: the command of a process that takes the place of a rank that died, with --respawn.

    Raises:
        Interrupted: on all ranks, once that checkpoint is written.
    """
    return _Job(comm, config, tracker, guard or Unguarded(), replacement).run()


class _Job:
    def __init__(
        self,
        comm: Comm,
        config: Config,
        tracker: Tracker | Callable[[bool], Tracker],
        guard: Unguarded,
        replacement: Sequence[str],
    ) -> None:
        self.comm, self.config, self._guard, self._replacement = comm, config, guard, replacement
        self._make_tracker = (lambda continues: tracker) if isinstance(tracker, Tracker) else tracker
        self._tracker: Tracker | None = None
        self._archive, self._memory = Archive(config), Memory(comm.joined)
        self._is_new, self._reached, self._has_spoken = comm.joined, 0, False
        self._shard: Shard | None = None
        self._faults: Faults | None = None

    def run(self) -> tuple[Metrics, torch.nn.Module]:
        """Train, and begin again with those that are left, as often as it takes."""
        failed_at: float | None = None  # seconds since 1970, of the first of those failures not reported yet
        lost: set[int] = set()  # by these
        known, refills = set(range(self.comm.founders)), 0
        failure: RankFailure | None = None
        while True:
            try:
                if failure is not None:
                    self._find_those_left(failure, known if not refills else set())
                if gone := known - set(self.comm.members):
                    failed_at, lost = failed_at or time.time(), lost | gone
                known = set(self.comm.members)
                if self.config.failures.respawn and self.comm.size < self.comm.founders and refills < REFILLS:
                    refills += 1
                    self.comm = self.comm.refilled(self._replacement)
                known = set(self.comm.members)
                self._guard.follow(self.comm)
                session = self._session()
                if failed_at is not None:
                    self._report(session, sorted(lost), failed_at)
                failure, failed_at, lost, refills = None, None, set(), 0
                self._train(session)
                return self._end(session)
            except RankFailure as error:
                failure, failed_at = error, failed_at or time.time()

    def _find_those_left(self, failure: RankFailure, known: set[int]) -> None:
        """Let those that are left be the ranks; if that is all that were `known`, going back would meet the same again."""
        with self._guard.within(RECOVERY):
            self.comm = self.comm.survivors()
        if known and known <= set(self.comm.members):
            raise self.comm.alike(MpisignError(f"messages fail though no rank has died: {failure}")) from failure

    def _session(self) -> Session:
        """Begin, or go on from what all remember, or else from what is on disk."""
        comm, remembered = self.comm, self._memory.common(self.comm, self._with_predecessors)
        self._archive.open(comm)
        state = remembered or self._archive.newest(comm)
        has_spoken = bool(comm.allreduce(torch.tensor([int(self._has_spoken)]), "max"))
        tracker = self._speaking(continues=state is not None or has_spoken)
        keep = bool(comm.allreduce(torch.tensor([int(self._keeps_data)]), "min"))
        session = Session(comm, self.config, tracker, self._shard if keep else None, self._faults)
        self._shard = session.shard
        if self._faults is None:
            self._faults = session.faults = self._injected(session.batches.steps)
        if state is not None:
            session.restore(state)
        if remembered is not None and session.optimizer.replicated:
            self._insist_on_one_model(session)
        return session

    def _with_predecessors(self, state: State) -> State:
        """Return a newcomer's state with the momentum that it is to begin with."""
        wanted = self.config.failures.respawn_momentum == "checkpoint"
        saved = self._archive.predecessors(self.comm) if wanted else None
        return state if saved is None else with_momentum(state, saved)

    def _injected(self, steps: int) -> Faults:
        comm, run, spec = self.comm, self.config.run, self.config.failures.inject
        log = run.output / "events.jsonl" if run.output else None
        faults = parse_faults(spec) if spec and not self._is_new else ()
        try:
            return Faults(faults, comm.members[comm.rank], comm.founders, steps, run.seed, log, lambda: self.comm.die())
        except ConfigError as error:
            raise comm.alike(error) from None

    @property
    def _keeps_data(self) -> bool:
        """Whether this rank holds the data that it is to go on with."""
        return self._shard is not None and self.config.failures.lost_data == "leave"

    def _speaking(self, continues: bool) -> Tracker:
        """Return the tracker of the first rank, which may have changed, or one that says nothing."""
        first = self.comm.rank == 0

        def make() -> Tracker:
            return (self._tracker or self._make_tracker(continues)) if first else Tracker()

        tracker = self.comm.together(make)
        self._has_spoken = True
        self._tracker = tracker if first else None
        return tracker

    def _insist_on_one_model(self, session: Session) -> None:
        own = checksum(session.model.parameters())
        text = f"rank {self.comm.rank}: the weights that ranks remember differ (checksum {own:014x} here)"
        self.comm.insist(own, DisagreementError(text))

    def _train(self, session: Session) -> None:
        comm = self.comm
        rounds = Rounds(comm, session.steps_taken)

        def common_state() -> torch.Tensor:
            return to_block({"session": session.common_state(), "rounds": rounds.state()})

        session.start()
        comm.open()
        while not session.is_over:
            self._guard.alive()
            comm.readmit(common_state)
            self._tell(session)
            try:
                self._go_on(session, rounds)
            except LeftBehind as behind:
                state = from_block(behind.state)
                session.catch_up(state["session"])
                rounds.restore(state["rounds"])

    def _go_on(self, session: Session, rounds: Rounds) -> None:
        """Judge where that is due, else take a step and what comes after it."""
        comm, archive = self.comm, self._archive
        if session.epoch_is_due:
            session.judge()
            return
        session.step()
        step = self._reached = session.steps_taken
        if archive.is_due(step):
            self._save(session)
        if (comm.resilient or archive.writes) and rounds.are_due(step):
            if rounds.agree(step, _STOP if self._guard.stop_is_wanted else 0) == _STOP:
                self._interrupt(session)
            if comm.resilient:
                self._memory.keep(session.state())
            rounds.done()

    def _save(self, session: Session) -> None:
        """Write a checkpoint; rank 0 also what those go on from that are away."""
        step = session.steps_taken
        self._archive.save(self.comm, step, session.state())
        for rank in self.comm.away:
            self._archive.save(self.comm, step, session.common_state(), rank)

    def _tell(self, session: Session) -> None:
        """Let the tracker know who has been late, and who has come back."""
        step, members = session.steps_taken, self.comm.members
        for news in self.comm.news():
            rank, seconds = members[news["rank"]], news["seconds"]
            message = {
                "late": f"rank {rank} is late: after {seconds:.2f} s the others have gone on without it, to step {step}",
                "returned": f"rank {rank} is back after {seconds:.2f} s, and goes on from step {step}",
            }[news["event"]]
            session.tracker.event(news | {"rank": rank, "step": step, "time": time.time(), "message": message})

    def _interrupt(self, session: Session) -> None:
        """Write a checkpoint, and end on all ranks."""
        step = session.steps_taken
        self._save(session)
        self._archive.close()
        self.comm.dismiss()  # all have written before any goes
        raise self.comm.alike(
            Interrupted(
                f"asked to stop: all ranks have written a checkpoint after step {step}; --resume auto goes on from there"
            )
        )

    def _end(self, session: Session) -> tuple[Metrics, torch.nn.Module]:
        summary, model = session.summary(), session.finished_model()
        self._tell(session)
        session.tracker.end(summary, model)
        self._archive.close()
        self.comm.dismiss()
        return summary, model

    def _report(self, session: Session, lost: Sequence[int], failed_at: float) -> None:
        step, members = session.steps_taken, self.comm.members
        replaced = sorted(set(lost) & set(members))
        who = f"rank {', '.join(map(str, lost))} died"
        go_on = f"{len(members)} of {self.comm.founders} go on after step {step}, {time.time() - failed_at:.2f} s later"
        session.tracker.event(
            {
                "event": "failure",
                "lost": list(lost),
                "replaced": replaced,
                "ranks_left": list(members),
                "step": step,
                "steps_lost": max(0, self._reached - step),
                "time": failed_at,
                "seconds": time.time() - failed_at,
                "message": f"{who}{' and was replaced' if replaced else ''}: {go_on}",
            }
        )
