"""Our scaling policy, as the simulator asks for it."""

from collections.abc import Callable

from autoscaler.policy.config import RISK, PolicyConfig
from autoscaler.policy.sizer import Sizer
from autoscaler.simulate.policy import Policy
from autoscaler.simulate.terms import Terms


def at(risk: float | None) -> Callable[[Terms], Policy]:
    """Return a builder of the policy at a risk in percent; None: the default."""

    def build(terms: Terms) -> Policy:
        config = PolicyConfig(
            min_replicas=terms.min_replicas,
            max_replicas=terms.max_replicas,
            capacity=terms.capacity,
            risk=RISK if risk is None else risk,
        )
        sizer = Sizer(config)
        sizer.warm(terms.history.end, terms.history.step, terms.history.work.tolist())
        return sizer

    return build
