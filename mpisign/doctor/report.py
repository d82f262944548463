"""Facts and findings, and how they are worded."""


class Report:
    """Facts, then findings: what is all right, what is slow or odd, and what is wrong."""

    def __init__(self) -> None:
        self._facts: list[str] = []
        self._fine: list[str] = []
        self._warnings: list[str] = []
        self._problems: list[str] = []

    def fact(self, title: str, text: str) -> None:
        """Add a line of the table."""
        self._facts.append(f"{title:<12} {text}")

    def ok(self, text: str) -> None:
        """Add what was checked and found good."""
        self._fine.append(f"ok: {text}")

    def warn(self, text: str, remedy: str) -> None:
        """Add what training survives."""
        self._warnings.append(f"warning: {text}\n     do: {remedy}")

    def problem(self, text: str, remedy: str) -> None:
        """Add what would make training go wrong."""
        self._problems.append(f"problem: {text}\n     do: {remedy}")

    @property
    def problems(self) -> str:
        """What would make training go wrong, as text."""
        return "\n".join(self._problems)

    @property
    def exit_code(self) -> int:
        """1 where there is a problem, else 0."""
        return 1 if self._problems else 0

    def __str__(self) -> str:
        return "\n".join([*self._facts, "", *self._fine, *self._warnings, *self._problems])


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def cause_and_remedy(text: str) -> tuple[str, str]:
    """Split what `environment` says into its sentences: what is wrong, and what to do."""
    cause, _, remedy = text.partition(". ")
    return cause, remedy[:1].lower() + remedy[1:]


def first_line(error: Exception) -> str:
    """Return an error's kind and the first line of its text."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
