"""Lists and the start of watches: from a query to a page, or to a position in the history."""

from collections.abc import Mapping, Sequence

from serving import errors
from serving.embedded.apiserver.requests import queries
from serving.embedded.apiserver.requests.paths import Address
from serving.embedded.apiserver.storage import pages
from serving.embedded.apiserver.storage.history import Matches, ObjectKey, ObjectVersion
from serving.embedded.apiserver.storage.store import ObjectStore, identifier
from serving.embedded.apiserver.storage.watches import Watch


def select(
    store: ObjectStore, address: Address, query: Mapping[str, str]
) -> list[tuple[ObjectKey, ObjectVersion]]:
    """Return the objects of a collection that the query's selectors match, as of now."""
    objects, matches = store.objects(address.kind), queries.matcher(address.kind, query)
    return [
        (key, objects[key])
        for key in _keys(store, address, query)
        if matches is None or matches(objects[key].object)
    ]


def page(
    store: ObjectStore, address: Address, query: Mapping[str, str], max_limit: int
) -> tuple[pages.ListPage, int]:
    """Return a page, and the resourceVersion of its state.

    Raises:
        errors.Gone: the version of the query or token is forgotten, or of an exact query in the future.
        errors.ApiError: 400 for invalid parameters, 504 for another version in the future.
    """
    matches = queries.matcher(address.kind, query)
    limit = min(queries.number(query, "limit") or 0, max_limit)  # 0 is all, as on kube-apiserver
    queries.number(query, "timeoutSeconds")  # a list only validates it
    token = query.get("continue", "")
    requested = queries.number(query, "resourceVersion")
    is_exact = _match_rule(query, requested) == "Exact"
    if not token and not is_exact:
        if requested is not None and requested > store.version:
            raise _too_new(requested, store.version)
        keys = _keys(store, address, query)
        first_page = pages.page(
            store.objects(address.kind), keys, store.version, limit=limit, after=None, matches=matches
        )
        return first_page, store.version
    return _page_as_of(store, address, query, matches, limit)


def _page_as_of(
    store: ObjectStore, address: Address, query: Mapping[str, str], matches: Matches | None, limit: int
) -> tuple[pages.ListPage, int]:
    """Return a page of the state as of the version of the `continue` token, or of the query without one."""
    after = None
    version = queries.number(query, "resourceVersion") or 0
    if token := query.get("continue", ""):
        if version:
            raise queries.bad("resourceVersion", str(version), "cannot be given together with continue")
        position = pages.decode(token)
        version, after = position.version, position.after
    try:
        state = store.history.as_of(identifier(address.kind), version, store.objects(address.kind))
    except errors.Gone as error:
        message = (
            "The provided continue parameter is too old to display a consistent list result. "
            f"You must start a new list without the continue parameter. ({error.message})"
        )
        raise errors.Gone(410, "Expired", message if after else error.message) from error
    keys: Sequence[ObjectKey]
    if state is store.objects(address.kind):
        keys = _keys(store, address, query)
    else:
        keys = sorted(key for key in state if address.namespace is None or key.namespace == address.namespace)
    return pages.page(state, keys, version, limit=limit, after=after, matches=matches), version


def _keys(store: ObjectStore, address: Address, query: Mapping[str, str]) -> Sequence[ObjectKey]:
    """Return the sorted keys of the current objects; of one object if a field selector has its name."""
    name = queries.name_in(query)
    if name is None or (address.kind.namespaced and address.namespace is None):
        return store.keys(address.kind, address.namespace)
    key = ObjectKey(address.namespace or "", name)
    return [key] if store.get(address.kind, key) is not None else []


def _match_rule(query: Mapping[str, str], requested: int | None) -> str:
    """Return `resourceVersionMatch` of a list, validated as kube-apiserver does; empty without one."""
    rule = query.get("resourceVersionMatch", "")
    if rule not in ("", "Exact", "NotOlderThan"):
        raise queries.bad("resourceVersionMatch", rule, "supported values: Exact, NotOlderThan")
    if rule and requested is None:
        raise queries.bad("resourceVersionMatch", rule, "needs resourceVersion")
    if rule == "Exact" and not requested:
        raise queries.bad("resourceVersionMatch", rule, "needs a resourceVersion other than 0")
    return rule


def _too_new(requested: int, newest: int) -> errors.ApiError:
    cause = errors.Cause("", "Too large resource version", "ResourceVersionTooLarge")
    message = f"Too large resource version: {requested}, current: {newest}"
    return errors.ApiError(504, "Timeout", message, (cause,), {"retryAfterSeconds": 1})


def watch(store: ObjectStore, address: Address, query: Mapping[str, str], max_seconds: float) -> Watch:
    """Return the watch: its start and its initial events.

    Raises:
        errors.Gone: the version of the query is forgotten, or in the future without `sendInitialEvents`.
        errors.ApiError: 400 for invalid parameters, 504 for a future version with `sendInitialEvents`.
    """
    requested = queries.number(query, "resourceVersion")
    seconds = queries.number(query, "timeoutSeconds")
    send_initial = queries.flag(query, "sendInitialEvents")
    rule = query.get("resourceVersionMatch", "")
    if send_initial and rule != "NotOlderThan":
        raise queries.bad("resourceVersionMatch", rule, "sendInitialEvents requires NotOlderThan")
    if rule and not send_initial and "sendInitialEvents" not in query:
        raise queries.bad("resourceVersionMatch", rule, "is forbidden for watch without sendInitialEvents")
    if send_initial and requested is not None and requested > store.version:
        raise _too_new(requested, store.version)
    initial: tuple[ObjectVersion, ...] = ()
    version = requested or store.version
    # Kubernetes' "Get State and Start at Any" (version 0) or "at Most Recent" (no version).
    gets_state = not requested and query.get("sendInitialEvents", "") == ""
    if send_initial or gets_state:
        initial, version = tuple(entry for _, entry in select(store, address, query)), store.version
    else:
        store.history.since(identifier(address.kind), version)  # raises Gone before the response begins
    return Watch(
        address.kind,
        address.namespace,
        queries.matcher(address.kind, query),
        version,
        initial=initial,
        initial_end=send_initial,
        bookmarks=queries.flag(query, "allowWatchBookmarks"),
        seconds=min(float(seconds), max_seconds) if seconds else max_seconds,
    )
