"""A toy family with variants that misbehave in every way that a planner can."""

# Variants are registered in this order.
from toy.family import (  # isort: skip
    NOT_THERE,
    TOY,
    Decision,
    ToyProblem,
    build,
    round_robin,
    with_work,
)
from toy.variants import reference, same  # isort: skip
from toy.failing import HUNGER, World, changed_world  # isort: skip
from toy.registries import (
    bounded_registry,
    figures_registry,
    labelled_registry,
    no_figures_registry,
    preloading_registry,
    slow_quality_registry,
    slow_reference_registry,
    toy_registry,
    waiting_registry,
)
