"""Who calls next: the kinds of callers by their weights, evenly mixed. Pure.

Every talk has its caller drawn anew, so that a few talks at once meet all kinds after a while too.
"""

from collections.abc import Mapping

from load.mouth import Script


class Cast:
    """`scripts`: of each kind of caller. Any stretch of talks has about as many of each as the weights say:
    each kind earns its weight with every talk, and who has most is next, and pays all weights together."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self.scripts = scripts
        self._earned = dict.fromkeys(scripts, 0)

    def next(self) -> str:
        """The kind of the next talk's caller."""
        for kind, script in self.scripts.items():
            self._earned[kind] += script.person.weight
        chosen = max(self._earned, key=lambda kind: self._earned[kind])
        self._earned[chosen] -= sum(script.person.weight for script in self.scripts.values())
        return chosen
