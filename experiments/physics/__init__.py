"""Laws of physics with known symmetries: is the right group named, and does it help?

Tasks after Finzi, Welling and Wilson 2021 (inertia, synthetic O(5), particle interaction) and
Finzi, Benton and Wilson 2021 (modified inertia), and two that break parity or everything. Data are
generated from the equations.
"""

from ._study import PRESETS as PRESETS
from ._study import Outcome as Outcome
from ._study import Study as Study
from ._study import run as run
from ._study import run_all as run_all
from ._study import summary as summary
from ._study import table as table
from ._tasks import TASKS as TASKS
from ._tasks import Task as Task

__all__ = ["PRESETS", "TASKS", "Outcome", "Study", "Task", "run", "run_all", "summary", "table"]
