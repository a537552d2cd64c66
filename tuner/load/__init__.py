"""How a spec is driven, and what was seen. Decisions are pure: samples, plan, statistics, stages, requests.

A trial goes like this, the brackets being its runner's:

    plan = requests.plan(load, description, model_name, parameters, recorded, locustfile, seed)
    state = stages.begin(load, constraints, settings, stop_below_throughput)
    async with Generator.start(url, plan, settings, cores) as generator:
        while isinstance(step := stages.next_step(state), Measure):
            await generator.window(step.level, step.warmup)                   (dropped; only where step.warmup > 0)
            seen = await generator.window(step.level, step.seconds)           -> Samples
            seen = joined([before, seen]) if step.extends else seen           (before: what this level gave until now)
            state = stages.after(state, statistics.summary(seen, constraints, settings), extends=step.extends)
    state.windows, step.result, step.reason, step.message, step.notes         -> the Trial's status

What is still to be measured (`stages`) and what is found (`results`, by `reading`) follow from curves through all windows (`curve`).

`generator.window` raises Temporary("LoadFailed") when locust has died. A runner puts `start_time` and the replica's usage
into a Window by `model_copy` before it gives it to `after`.
"""
