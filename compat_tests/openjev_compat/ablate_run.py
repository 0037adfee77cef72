"""Runs the variants one after the other, each with a journal of its own; other weights are loaded last."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from openjev_server.canvas import SEED, Template
from openjev_server.settings import Settings
from openjev_server.writable import check_files
from rich.console import Console

from .ablate import VariantResult, compare_variant, not_run
from .ablate_output import AblationReport
from .asking import Ask, asks_of
from .bars import nodes_bar
from .fixture import Fixture
from .journal import Journal
from .local_model import LocalModel, Run, Setup, seed_template
from .machine import describe_machine, peak_memory_gib
from .pairing import base_run
from .public_cases import default_fixtures, read_cases, read_recorded
from .store import FixtureError, load_fixtures
from .variants import FACTORS, Variant, base_setup, variants

__all__ = ["AblateOptions", "ablate"]


@dataclass(frozen=True, slots=True)
class AblateOptions:
    """The flags of the command."""

    settings: Settings
    cases: Path | None
    fixtures: tuple[Path, ...]
    only: str | None
    nodes: int | None
    out: Path
    resume: bool


def ablate(options: AblateOptions, console: Console) -> AblationReport:
    """Asks what no journal holds yet, and compares.

    Raises FixtureError for inputs that cannot be used, and CannotWrite before anything is asked.
    """
    factors = _chosen(options.only)
    asks, jev = _questions(options)
    settings = options.settings
    model = LocalModel(settings)
    base = base_setup(model.template(settings.template))
    wanted = _wanted(model, base, factors, weights=settings.weights)
    for variant in wanted:
        if variant.reason is not None:
            console.print(f"not run: {variant.setup.name}: {variant.reason}", highlight=False, markup=False)
    check_files(
        options.out / "report.json",
        options.out / "report.md",
        *(_journal(options, variant) for variant in wanted if variant.reason is None),
    )
    results: list[VariantResult] = []
    failures: list[str] = []
    beside: Sequence[Fixture] = ()
    models: dict[str | None, LocalModel] = {None: model}
    for variant in wanted:
        setup = variant.setup
        how = (
            f"{setup.template.id} {setup.template.hash}, {setup.layout}, {setup.steps} steps, {setup.replicas} replicas"
        )
        if variant.reason is not None:
            results.append(not_run(setup.name, variant.factor, how, variant.reason))
            continue
        if variant.weights not in models:
            for loaded in models.values():
                loaded.close()
            models[variant.weights] = LocalModel(settings.model_copy(update={"weights": variant.weights}))
        try:
            run = _run(models[variant.weights], variant, asks, options, console)
        except FixtureError as error:
            if variant.factor == "base":
                raise
            results.append(not_run(setup.name, variant.factor, how, str(error)))
            continue
        if variant.factor == "base":
            beside = run.fixtures
        failures += [f"{setup.name}: {failure}" for failure in run.failures]
        results.append(compare_variant(setup.name, variant.factor, how, run.fixtures, beside, jev, seconds=run.seconds))
    return AblationReport(
        model=model.id,
        weights_hash=model.weights_hash,
        hardware=describe_machine(),
        peak_memory_gib=peak_memory_gib(),
        results=tuple(results),
        failures=tuple(failures),
    )


def _wanted(model: LocalModel, base: Setup, factors: frozenset[str], *, weights: str) -> list[Variant]:
    """The base and every variant of the factors, with why it cannot be run. Raises FixtureError when none of them can.

    A part of them is worth running, and the report says which part.
    """
    lacking = "the tokenizer lacks its control tokens"
    wanted = [
        variant if variant.reason or model.fits(variant.setup.template) else replace(variant, reason=lacking)
        for variant in variants(base, _seed(model), weights=weights)
        if variant.factor in ("base", *factors)
    ]
    if all(variant.reason is not None for variant in wanted if variant.factor != "base"):
        reasons = "; ".join(f"{v.setup.name}: {v.reason}" for v in wanted if v.factor != "base")
        raise FixtureError(f"nothing to vary: {reasons}")
    return wanted


def _journal(options: AblateOptions, variant: Variant) -> Path:
    return options.out / f"{re.sub('[^a-z0-9]+', '-', variant.setup.name.lower()).strip('-')}.jsonl"


def _run(model: LocalModel, variant: Variant, asks: Sequence[Ask], options: AblateOptions, console: Console) -> Run:
    journal = _journal(options, variant)
    if not options.resume:
        journal.unlink(missing_ok=True)
    with nodes_bar(variant.setup.name, len(asks), console) as advance:
        return model.run(variant.setup, asks, Journal(journal), advance)


def _questions(options: AblateOptions) -> tuple[tuple[Ask, ...], Mapping[str, Fixture]]:
    """What to ask, and Jev's answers by question id."""
    recorded = default_fixtures()
    if options.cases is not None:
        known = read_recorded(recorded, ()).jev if recorded is not None else {}
        cases = read_cases(options.cases, known, nodes=options.nodes)
        return cases.asks, cases.jev
    paths = options.fixtures or ((recorded / "jev",) if recorded is not None else ())
    if not paths:
        raise FixtureError("nothing to ask: give --cases or --fixtures")
    texts = [fixture for fixture in load_fixtures(paths) if fixture.request is not None and fixture.run is None]
    asks = tuple(asks_of(texts)[: options.nodes])
    if not asks:
        raise FixtureError("no fixture holds the text to ask")
    ids = {id_ for ask in asks for id_ in ask.questions}
    return asks, {id_: fixture for id_, fixture in base_run(texts, side="right").items() if id_ in ids}


def _seed(model: LocalModel) -> Template | None:
    try:
        return seed_template(model, SEED.id)
    except FixtureError:
        return None


def _chosen(only: str | None) -> frozenset[str]:
    if only is None:
        return frozenset(FACTORS)
    chosen = frozenset(name.strip() for name in only.split(","))
    if unknown := sorted(chosen - FACTORS.keys()):
        raise FixtureError(f"--only {', '.join(unknown)}: choose among {', '.join(FACTORS)}")
    return chosen
