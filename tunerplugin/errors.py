"""The one exception tree of the project.

Every message says what was expected, what was got, and what to do.  The command line turns a
``TunerError`` into one sentence and exit code 2; anything else is a bug and keeps its traceback.
"""

from __future__ import annotations


class TunerError(Exception):
    """Base of every error that a user can act on."""


class InputError(TunerError):
    """An argument, option or file of the user cannot be used."""


class SpaceError(TunerError):
    """A design space is malformed, or a value lies outside it."""


class EmptySpaceError(SpaceError):
    """No legal candidate exists (or none that was not measured already)."""


class TargetError(TunerError):
    """A hardware target is unknown or lacks what the task needs."""


class RecordError(TunerError):
    """A record or record store cannot be read or written."""


class WeightsError(TunerError):
    """Predictor weights do not fit this version, or the file is damaged."""


class MeasureError(TunerError):
    """Measurement as such is impossible (not: one candidate failed)."""


class ScheduleError(TunerError):
    """A schedule template cannot build what was asked of it."""


class GraphError(TunerError):
    """An operator graph cannot be made, or is none: cyclic, empty, without shapes."""


class BudgetError(TunerError):
    """No design fits the area or power that was given."""
