"""Drives load at a replica and finds the highest load that meets the constraints.

Only the generator and its locust processes do I/O. The loop of a trial, simplified from
`tuner/trials/run.py`, with comments in brackets:

    plan = requests.plan(load, description, model_name, parameters, recorded, locustfile, seed)
    state = highest_load.begin(load, constraints, settings, stop_below_throughput)
    async with Generator.start(url, plan, settings, cores) as generator:
        while isinstance(step := highest_load.next_step(state), MeasureLevel):
            await generator.window(step.level, step.warmup)              (dropped; only if step.warmup > 0)
            samples = await generator.window(step.level, step.seconds)
            samples = joined([before, samples]) if step.extends else samples       (before: of the last step)
            window = window_summary.summary(samples, constraints)
            state = highest_load.after(state, window, extends=step.extends)
    state.windows, step.result, step.reason, step.message, step.notes    -> the Trial's status

`generator.window` raises Temporary("LoadFailed") if locust died. The runner sets `start_time` and usage of a
Window.
"""
