import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.embedded.apiserver.storage import pages
from serving.embedded.apiserver.storage.history import ObjectKey, ObjectVersion

names = st.text("abc-", min_size=1, max_size=4)
keys = st.builds(ObjectKey, names, names)


@given(st.lists(keys, unique=True), st.integers(1, 5))
def test_all_pages_together_are_the_list_in_order(unordered: list[ObjectKey], limit: int) -> None:
    ordered = sorted(unordered)
    state = {
        key: ObjectVersion(
            {"metadata": {"name": key.name, "namespace": key.namespace, "resourceVersion": "4"}}
        )
        for key in unordered
    }
    seen: list[ObjectVersion] = []
    after = None
    while True:
        page = pages.page(state, ordered, 4, limit=limit, after=after, matches=None)
        seen += page.entries
        if not page.token:
            break
        assert page.remaining == len(unordered) - len(seen)
        position = pages.decode(page.token)
        assert position.version == 4
        after = position.after
    assert seen == [state[key] for key in ordered]


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_any_token_is_decoded_or_refused(text: str) -> None:
    try:
        position = pages.decode(text)
    except errors.ApiError:
        return
    assert pages.decode(pages.encode(position)) == position


@pytest.mark.parametrize("payload", [b'[2,1,"",""]', b'[1,-1,"",""]', b'[1,"4","",""]', b"[]", b"{}"])
def test_a_token_with_wrong_fields_is_a_400(payload: bytes) -> None:
    import base64

    with pytest.raises(errors.ApiError):
        pages.decode(base64.urlsafe_b64encode(payload).decode())
