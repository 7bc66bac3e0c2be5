"""The local pack's machine: all stages share its cores."""

from load.simulation.box import Machine
from load.simulation.clock import Pace
from load.simulation.costs import PACE_S, Measured
from voice_app.messages import Stage
from voice_app.pipeline import layout


def local_machine(
    costs: Measured,
    cores: int | None = None,
    *,
    served: bool = True,
    callers: bool = False,
    pace: float = 1.0,
) -> Machine:
    """The machine that was measured, with the layout `cpu`: all stages share its cores, with the server if
    there is one (`served`), and with the callers where they are on the same machine. `pace`: how many times
    as long the work of stages, server and callers takes as when it was measured; it is as uneven as then."""
    around, places = costs.around, layout.load("cpu")
    return Machine(
        processors={"cpu": float(cores or costs.cores)},
        places=dict.fromkeys(Stage, ("cpu",)),
        workers={stage: at[0].worker for stage, at in places.items()},
        step_s=around.step_s,
        hop_s=around.hop_s,
        services=costs.stages,
        talk_cores=pace * (served * around.server_cores + callers * around.callers_cores),
        pace=Pace(tuple(pace * step for step in costs.pace), PACE_S),
    )
