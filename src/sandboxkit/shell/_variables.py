"""
What variables hold, as far as the text itself sets them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["OUTPUT", "SECRET", "SPLIT", "Variables"]

SPLIT = "\ue0ff"
"""
Stands between the items of a list: an array, the words of a loop, the arguments of `set`.
"""
SECRET, OUTPUT = 1, 2
"""
Marks of a value: a secret is part of it; something that a command printed is.
"""
_MAX_VALUE = 500
_POSITIONAL = "@*0123456789"
_PRESET = {
    "HOME": "~",
    "IFS": " \t\n",
    "PWD": ".",
    "TMPDIR": "/tmp",
    "0": "bash",
    "SHELL": "bash",
    "PATH": "/usr/bin:/bin",
}


@dataclass(slots=True)
class Variables:
    """
    Values for a guess: the last one set before in the text, whatever branch it is in.
    A variable the text does not set is empty, as the environment of a box is not the
    caller's. `evaluates_output` says whether bash takes for arithmetic what a command printed.
    """

    values: dict[str, str] = field(default_factory=lambda: dict(_PRESET))
    references: dict[str, str] = field(default_factory=dict)
    evaluates_output: bool = False
    marks: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Variables:
        """
        The same values, to be set apart.
        """
        return Variables(dict(self.values), dict(self.references), self.evaluates_output, dict(self.marks))

    def go_back(self, before: Variables) -> None:
        """
        Makes this the same as *before*: readers hold on to the object.
        """
        self.values, self.references = before.values, before.references
        self.evaluates_output, self.marks = before.evaluates_output, before.marks

    def get(self, name: str) -> str:
        """
        The value of *name*; lists with `SPLIT` between their items.
        """
        return self.values.get(self.references.get(name, name), "")

    def target(self, name: str) -> str:
        """
        The variable that is set where *name* is.
        """
        return self.references.get(name, name)

    def set(self, name: str, value: str, *, appends: bool = False) -> None:
        """
        Sets *name*.
        """
        name = self.references.get(name, name)
        value = self.values.get(name, "") + value if appends else value
        self.values[name] = value[:_MAX_VALUE]

    def mark(self, name: str, marks: int) -> None:
        """
        Marks the value of *name*, whatever it is set to later: that may be in another branch.
        """
        name = self.references.get(name, name)
        self.marks[name] = self.marks.get(name, 0) | marks

    def is_output(self, name: str) -> bool:
        """
        Whether what a command printed is part of the value of *name*.
        """
        return self.marks.get(self.references.get(name, name), 0) & OUTPUT != 0

    def set_arguments(self, arguments: tuple[str, ...]) -> None:
        """
        Sets the positional parameters.
        """
        self.set("@", SPLIT.join(arguments))
        self.set("*", SPLIT.join(arguments))
        for number, argument in enumerate(arguments[:9], 1):
            self.set(str(number), argument)
        number = len(arguments) + 1
        while self.values.pop(str(number), None) is not None:
            number += 1

    def shift(self, count: int) -> None:
        """
        Leaves the first *count* positional parameters out.
        """
        self.set_arguments(tuple(self.get("@").split(SPLIT))[count:])

    def positional(self) -> dict[str, str]:
        """
        The positional parameters, by name.
        """
        return {name: self.values.get(name, "") for name in _POSITIONAL}

    def is_home(self) -> bool:
        """
        Whether HOME still is the home.
        """
        return self.values.get("HOME") == "~"
