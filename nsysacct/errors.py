"""Exceptions of the library, one line each: ``subject: what is wrong; what to do``.

Everything that prevents an answer is one of these; the command line turns them into exit code 3
(or 2 for the ones that are usage errors). Missing data that only limits an answer is a blind spot
in the account, not an exception.
"""

from __future__ import annotations


class NsysacctError(Exception):
    """Base of all errors that nsysacct raises on purpose.

    Parameters
    ----------
    subject : str
        What the message is about: a file name, an option, a registry key.
    problem : str
        What is wrong with it.
    remedy : str, optional
        What to do about it.
    """

    exit_code = 3

    def __init__(self, subject: str, problem: str, remedy: str = "") -> None:
        self.subject = subject
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{subject}: {problem}" + (f"; {remedy}" if remedy else ""))


class TraceError(NsysacctError):
    """The file cannot be read as a capture."""


class NotAnExportError(TraceError):
    """Not SQLite, or SQLite that nsys did not write."""


class UnsupportedSchemaError(TraceError):
    """An nsys export without a column that accounting needs."""


class NoCudaTraceError(TraceError):
    """An nsys export without any CUDA activity, or without its GPU side."""


class UsageError(NsysacctError):
    """An option or argument that cannot be right."""

    exit_code = 2


class PatternError(UsageError):
    """A kernel-name pattern that does not follow the pattern language.

    Parameters
    ----------
    pattern : str
        The pattern as written.
    column : int
        1-based column of the first character that is wrong.
    problem, remedy : str
        As in `NsysacctError`.
    """

    def __init__(self, pattern: str, column: int, problem: str, remedy: str = "") -> None:
        self.pattern = pattern
        self.column = column
        super().__init__(f"pattern {pattern!r}", f"column {column}: {problem}", remedy)


class RegistryError(NsysacctError):
    """A registry file that is not valid, or an engine that no registry describes."""


class UnknownEngineError(RegistryError):
    """An engine name that no registry describes: wrong usage."""

    exit_code = 2


class WireError(NsysacctError):
    """JSON of another kind, or of a newer version, or damaged."""


class IncomparableError(NsysacctError):
    """Runs that must not be compared: another GPU, engine, granularity, registry or label."""


class LogError(NsysacctError):
    """A run log in which no known engine's acceptance lines were found."""
