"""The output of `slipway tune status` and `describe pe` in each phase."""

import datetime as dt
from typing import Any

from serving.cli.tune import lines, summary
from serving.objects import Object
from tests.objects.tuning.tuned_experiments import (
    condition,
    experiment,
    experiment_spec,
    measured,
    recommendation,
    trial,
    window,
)

NOW = dt.datetime(2026, 1, 1, 0, 3, 12, tzinfo=dt.UTC)
SPEC = ("500m", "512Mi", "16", "1")


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("  ") if cell] for line in text.splitlines()]


def test_an_experiment_is_pending_without_a_status() -> None:
    text = summary.status(experiment(), [], NOW)
    header, row = cells(text)
    assert header == ["NAME", "PHASE", "SPECS", "TRIALS", "TIME", "SPENT", "REGRET", "GOAL"]
    assert row == [
        "digits",
        "Pending",
        "N/A",
        "0 of 20",
        "N/A",
        "0",
        "N/A",
        "least cost of a million requests, p99 latency <= 100 ms, error rate <= 1 %",
    ]


def test_time_of_an_experiment_excludes_its_suspensions() -> None:
    began = {"startTime": "2026-01-01T00:00:12Z", "suspendedSeconds": 60.0}
    row = cells(summary.status(experiment(phase="Running", **began), [], NOW))[1]
    held = experiment(phase="Suspended", suspendTime="2026-01-01T00:02:32Z", **began)
    assert (row[4], cells(summary.status(held, [], NOW))[1][4]) == ("2m of 30m", "80s of 30m")
    failed = {
        **held,
        "status": {**held["status"], "phase": "Failed", "completionTime": "2026-01-01T00:02:42Z"},
    }
    assert cells(summary.status(failed, [], NOW))[1][4] == "80s of 30m"


def test_a_running_experiment_shows_best_spec_and_stages_of_trials() -> None:
    running = experiment(
        phase="Running",
        specs=96,
        expectedRegret=0.123,
        spentCost=0.00213,
        best=recommendation(*SPEC),
        conditions=[condition("False", "Searching", "2 of at most 20 trials are over, 1 running")],
    )
    going = trial(
        3,
        "1",
        "1Gi",
        "1",
        "2",
        phase="Measuring",
        startTime="2026-01-01T00:02:51Z",
        windows=[window(80.0, 0.05)],
    )
    text = summary.status(running, [measured(1, *SPEC), measured(2, *SPEC), going], NOW)
    first, best, now, words = text.split("\n\n")
    assert "2 of 20  3m12s of 30m  0.00213  12.3%" in first
    assert best.splitlines()[0].split() == [
        "BEST",
        "SO",
        "FAR",
        "CPU",
        "MEMORY",
        "BATCHSIZE",
        "OMP_NUM_THREADS",
        "COST/H",
        "TODAY",
        "COST",
        "OF",
        "A",
        "MILLION",
        "REQUESTS",
    ]
    assert "500m  512Mi   16         1                0.0225  0.045" in best
    assert best.endswith("0.0546 (0.0532 to 0.0559)")
    assert (
        "digits-3  1    1Gi     1          2                Measuring  21s  8     80 (77.6 to 82.4)  50 ms"
        in now
    )
    assert words == "Searching: 2 of at most 20 trials are over, 1 running"


def test_weights_of_earlier_experiments_are_shown() -> None:
    learned = [{"experiment": "may", "weight": 0.62}, {"experiment": "june", "weight": 0.0}]
    text = summary.status(experiment(phase="Running", specs=96, learned=learned), [], NOW)
    assert "Warm start: may 62%, june dropped" in text.splitlines()


def test_an_unknown_regret_is_not_shown() -> None:
    running = experiment(phase="Running", specs=96, expectedRegret=0.0)
    assert cells(summary.status(running, [], NOW))[1][6] == "N/A"
    assert cells(summary.status(running, [measured(1, *SPEC)], NOW))[1][6] == "0.0%"


def test_running_trials_have_the_parameters_of_all_of_them() -> None:
    trials = [trial(1, purpose="Baseline"), trial(2, *SPEC)]
    header, baseline, explore = cells(summary.running(experiment(phase="Running"), trials, NOW))
    assert header[:5] == ["NOW", "CPU", "MEMORY", "BATCHSIZE", "OMP_NUM_THREADS"]
    assert baseline[:5] == ["digits-1", "N/A", "N/A", "N/A", "N/A"]
    assert explore[:5] == ["digits-2", *SPEC]


def test_an_ended_experiment_shows_the_recommendation_and_no_running_trial() -> None:
    running = experiment(
        phase="Succeeded",
        specs=96,
        completionTime="2026-01-01T00:02:00Z",
        best=recommendation(*SPEC),
        recommendation=recommendation(*SPEC, trial="digits-9"),
        spentCost=0.5,
    )
    text = summary.status(running, [trial(3, *SPEC)], NOW)
    assert "RECOMMENDED" in text
    assert "digits-9" in text
    assert "digits-3" not in text
    assert "2m of 30m" in text


def ended(regret: float, **fields: Any) -> Object:
    return experiment(
        phase="Succeeded",
        specs=96,
        trials={"total": 6, "succeeded": 6},
        expectedRegret=regret,
        recommendation=recommendation(*SPEC, **fields),
    )


def test_a_recommendation_after_too_few_trials_is_titled_not_settled() -> None:
    assert summary.best(ended(0.46)).startswith("NOT SETTLED  CPU")
    assert summary.best(ended(0.01, probability=0.5)).startswith("NOT SETTLED  CPU")
    assert summary.best(ended(0.01, probability=0.99)).startswith("RECOMMENDED  CPU")
    unsettled = summary.why_unsettled(ended(0.46, probability=0.5))
    assert unsettled is not None
    assert summary.unsettled_sentence(unsettled) == (
        "Not settled after 6 trials: expected regret 46 %; its next measurement breaks a constraint with a"
        " probability of 50 %; run 14 more trials"
    )
    assert summary.why_unsettled(experiment(phase="Running", expectedRegret=0.9)) is None


def test_the_best_other_spec_of_the_price_is_shown_with_the_rule_that_decided() -> None:
    other = {
        **recommendation("500m", "512Mi", "16", "2", trial="digits-5", objective=20_000_000.0),
        "probability": 0.62,
        "rule": "OnlySafe",
    }
    text = summary.best(ended(0.01, probability=0.9951, alternative=other))
    header, chosen, alternative, rule = text.splitlines()
    assert header.endswith("MEETS NEXT TIME")
    assert chosen.split()[:7] == ["digits-3", "500m", "512Mi", "16", "1", "0.0225", "0.045"]
    assert chosen.endswith("over 99 %")
    assert alternative.split()[:7] == ["digits-5", "500m", "512Mi", "16", "2", "0.0225", "0.045"]
    assert alternative.endswith("62 %")
    assert (
        rule == "Only the recommended spec keeps the constraints with the allowance for noise, which decided."
    )


def test_a_failed_experiment_shows_its_reason() -> None:
    running = experiment(
        phase="Failed", conditions=[condition("False", "ConstraintNotMet", "none of 9 trials met it")]
    )
    assert summary.status(running, [], NOW).endswith("\n\nConstraintNotMet: none of 9 trials met it")


def test_trials_are_listed_by_number_with_their_outcome() -> None:
    dead = trial(
        10,
        "500m",
        "512Mi",
        "1",
        "1",
        phase="Failed",
        reason="OutOfMemory",
        seconds=7.5,
        notes=["LimitNotEnforced: no cgroup"],
    )
    lines = summary.trials_table([dead, measured(2, *SPEC), trial(1, purpose="Baseline")]).splitlines()
    assert lines[0].split()[:4] == ["NO", "PURPOSE", "CPU", "MEMORY"]
    assert [line.split()[0] for line in lines[1:]] == ["1", "2", "10"]
    assert lines[1].split()[:4] == ["1", "Baseline", "N/A", "N/A"]
    assert "Measured     8     114 (111 to 117)  84.1 ms  Yes    190.0 MB  41s   -" in lines[2]
    assert lines[3].split()[7:] == [
        "OutOfMemory",
        "N/A",
        "N/A",
        "N/A",
        "N/A",
        "N/A",
        "7s",
        "LimitNotEnforced",
    ]
    assert summary.trials_table([]) == "<none>"


def test_the_goal_names_the_percentile_of_a_latency_objective() -> None:
    spec = experiment_spec(objective={"objectiveMetricName": "latency", "percentile": 95, "type": "minimize"})
    assert summary.goal(spec).startswith("least p95 latency, ")


def status_lines(*states: tuple[dict[str, object], list[dict[str, object]]]) -> list[str]:
    known: dict[str, str] = {}
    out: list[str] = []
    for experiment_state, trials in states:
        for line in lines.new(known, experiment_state, trials):
            out.append(lines.text(line, experiment_state, NOW))
            known[line.subject] = line.text
    return out


def test_each_change_is_one_line_with_its_own_time() -> None:
    running = experiment(phase="Running")
    better = experiment(phase="Running", best=recommendation(*SPEC, trial="digits-1"))
    done = experiment(
        phase="Succeeded",
        completionTime="2026-01-01T00:03:00Z",
        best=recommendation(*SPEC),
        conditions=[condition("True", "Recommended", "cpu=500m")],
    )
    starting, measuring = (trial(1, *SPEC, phase=phase) for phase in ("Starting", "Measuring"))
    assert status_lines(
        (experiment(), []),
        (running, []),
        (running, [starting]),
        (running, [starting]),
        (running, [measuring]),
        (better, [measured(1, *SPEC)]),
        (done, [measured(1, *SPEC)]),
    ) == [
        "0s     Pending",
        "3m12s  Running",
        "3m12s  digits-1 Starting: cpu=500m memory=512Mi batchSize=16 OMP_NUM_THREADS=1",
        "3m12s  digits-1 Measuring",
        "2m30s  digits-1 Measured, 114 (111 to 117) req/s, p99 84.1 ms",
        "3m12s  best so far: digits-1, cost of a million requests 0.0546 (0.0532 to 0.0559)",
        "3m     Succeeded: Recommended: cpu=500m",
    ]


def test_a_best_spec_without_an_objective_has_no_value() -> None:
    unknown = recommendation(*SPEC, trial="digits-1", objective=0.0, low=0.0, high=0.0)
    assert status_lines((experiment(phase="Running", best=unknown), []))[-1].endswith(
        "  best so far: digits-1"
    )


def test_the_line_of_a_trial_that_did_not_run_has_its_message() -> None:
    dead = trial(1, *SPEC, phase="Failed", reason="OutOfMemory", message="killed at 256Mi")
    assert (
        status_lines((experiment(phase="Running"), [dead]))[1]
        == "3m12s  digits-1 OutOfMemory: killed at 256Mi"
    )


def test_no_terminal_obeys_a_foreign_text_in_the_status_or_its_lines() -> None:
    dead = trial(1, *SPEC, phase="Failed", reason="Crashed", message="\x1b]0;x\x07killed")
    failed = experiment(phase="Failed", conditions=[condition("False", "Crashed", "\x1b]0;x\x07\nkilled")])
    assert status_lines((experiment(phase="Running"), [dead]))[1].endswith("Crashed: \\x1b]0;x\\x07killed")
    assert status_lines((failed, []))[-1].endswith("Crashed: \\x1b]0;x\\x07\\nkilled")
    assert summary.status(failed, [], NOW).endswith("\n\nCrashed: \\x1b]0;x\\x07\nkilled")
