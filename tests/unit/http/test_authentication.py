"""Who may call, and what."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from bridge.errors import Forbidden
from bridge.http.authentication import Authentication, User, certificate_names, is_loopback
from bridge.http.problems import OriginRefused, Unauthenticated

CERTIFICATE = {
    "subject": ((("organizationName", "Shop"),), (("commonName", "orders-service"),)),
    "subjectAltName": (("DNS", "orders.internal"), ("URI", "spiffe://shop/orders")),
}


def request(certificate: dict[str, Any] | None = None, **headers: str) -> web.Request:
    transport = Mock()
    transport.get_extra_info = lambda name, default=None: certificate if name == "peercert" else default
    sent = {"Host": "localhost:61616", **headers}
    return make_mocked_request("GET", "/", headers=sent, transport=transport)


def bearer(token: str) -> web.Request:
    return request(Authorization=f"Bearer {token}")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("LOCALHOST", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.7", False),
        ("hub.example", False),
    ],
)
def test_loopback_is_told_from_what_others_can_reach(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_on_loopback_without_any_token_everybody_may_do_everything() -> None:
    principal = Authentication(host="127.0.0.1").authenticate(request())
    assert principal.may_send("orders")
    assert principal.may_receive("orders")
    assert principal.may_link


@pytest.mark.parametrize(
    "authentication",
    [
        Authentication(host="127.0.0.1", tokens=["secret"]),
        Authentication(host="127.0.0.1", users=[User("a", token="secret")]),
        Authentication(host="127.0.0.1", client_certificates=True),
        Authentication(host="0.0.0.0", tokens=["secret"]),
        Authentication(host="0.0.0.0"),
    ],
)
def test_everywhere_else_a_request_without_a_token_is_refused(authentication: Authentication) -> None:
    with pytest.raises(Unauthenticated):
        authentication.authenticate(request())


@pytest.mark.parametrize(
    "header", ["Bearer wrong", "Bearer ", "Bearer", "Basic secret", "secret", "Bearer sec"]
)
def test_a_wrong_token_is_refused_and_not_repeated(header: str) -> None:
    with pytest.raises(Unauthenticated) as caught:
        Authentication(host="0.0.0.0", tokens=["secret"]).authenticate(request(Authorization=header))
    assert "wrong" not in caught.value.detail
    assert caught.value.found is None


@pytest.mark.parametrize("header", ["Bearer secret", "bearer secret", "Bearer  secret "])
def test_a_token_has_every_right(header: str) -> None:
    principal = Authentication(host="0.0.0.0", tokens=["other", "secret"]).authenticate(
        request(Authorization=header)
    )
    assert principal.may_send("orders")
    assert principal.may_receive("orders")
    assert principal.may_link


def test_a_user_may_what_its_wildcards_say_and_nothing_else() -> None:
    user = User("orders-service", token="t", send=["orders.#"], receive=["receipts.*"])
    principal = Authentication(host="0.0.0.0", tokens=["root"], users=[user]).authenticate(bearer("t"))
    principal.check_send("orders.eu.de")
    principal.check_receive("receipts.eu")
    with pytest.raises(Forbidden) as caught:
        principal.check_send("receipts.eu", "messages[3].address")
    assert caught.value.key == "messages[3].address"
    assert "orders-service" in caught.value.detail
    with pytest.raises(Forbidden):
        principal.check_receive("orders.eu.de")
    with pytest.raises(Forbidden):
        principal.check_link()


def test_what_was_said_of_many_addresses_is_not_kept_for_ever() -> None:
    principal = Authentication(host="0.0.0.0", users=[User("a", token="t", send=["a.#"])]).authenticate(
        bearer("t")
    )
    for number in range(10_000):
        assert principal.may_send(f"a.{number}")
    assert not principal.may_send("b")


def test_a_user_with_the_link_right_may_open_one() -> None:
    authentication = Authentication(host="0.0.0.0", users=[User("edge", token="t", link=True)])
    authentication.authenticate(bearer("t")).check_link()


def test_a_verified_certificate_alone_is_enough_where_no_user_has_one() -> None:
    authentication = Authentication(host="0.0.0.0", client_certificates=True)
    assert authentication.authenticate(request(CERTIFICATE)).may_send("orders")
    with pytest.raises(Unauthenticated):
        authentication.authenticate(request())


@pytest.mark.parametrize("name", ["orders-service", "orders.internal", "spiffe://shop/orders"])
def test_a_certificates_user_has_that_users_rights(name: str) -> None:
    authentication = Authentication(
        host="0.0.0.0", users=[User("shop", certificate_name=name, send=["orders"])], client_certificates=True
    )
    principal = authentication.authenticate(request(CERTIFICATE))
    assert principal.name == "shop"
    assert not principal.may_receive("orders")


def test_a_certificate_that_no_user_is_named_by_is_refused() -> None:
    authentication = Authentication(
        host="0.0.0.0", users=[User("other", certificate_name="other")], client_certificates=True
    )
    with pytest.raises(Unauthenticated):
        authentication.authenticate(request(CERTIFICATE))
    assert certificate_names(CERTIFICATE) == ["orders.internal", "spiffe://shop/orders", "orders-service"]


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:61616", "127.0.0.1:1", "[::1]", "[::1]:61616", "LocalHost:80"]
)
def test_a_loopback_listener_answers_to_its_names_at_any_port(host: str) -> None:
    Authentication(host="127.0.0.1").check_origin(request(Host=host))


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:61616", "localhost.evil.example", "", "[::2]:1"]
)
def test_a_loopback_listener_refuses_any_other_host(host: str) -> None:
    with pytest.raises(OriginRefused):
        Authentication(host="127.0.0.1").check_origin(request(Host=host))


def test_a_listener_off_loopback_answers_to_any_host() -> None:
    Authentication(host="0.0.0.0").check_origin(request(Host="hub.example"))


def test_only_allowed_origins_may_call() -> None:
    authentication = Authentication(host="127.0.0.1", allowed_origins=["https://shop.example"])
    authentication.check_origin(request())
    authentication.check_origin(request(Origin="https://shop.example"))
    for origin in ("http://shop.example", "https://shop.example.evil", "null", ""):
        with pytest.raises(OriginRefused):
            authentication.check_origin(request(Origin=origin))


# ------------------------------------------------------------------ other callers while it listens


def test_callers_change_and_those_that_are_gone_or_have_other_rights_are_revoked() -> None:
    shop, store = User("shop", "s", send=("x",)), User("store", "t", send=("x",))
    authentication = Authentication(host="127.0.0.1", tokens=["a", "b"], users=[shop, store])
    before = {token: authentication.authenticate(bearer(token)) for token in "abst"}
    authentication.renew(["a", "c"], [User("shop", "s", send=("y",)), store])
    assert {token for token, one in before.items() if one.revoked.is_set()} == {"b", "s"}
    assert authentication.authenticate(bearer("a")) is before["a"]
    assert authentication.authenticate(bearer("t")) is before["t"]
    assert authentication.authenticate(bearer("s")).may_send("y")
    assert not authentication.authenticate(bearer("s")).may_send("x")
    with pytest.raises(Unauthenticated):
        authentication.authenticate(bearer("b"))


def test_a_listener_is_open_only_while_there_is_no_caller_to_tell_from_others() -> None:
    authentication = Authentication(host="127.0.0.1")
    anybody = authentication.authenticate(request())
    authentication.renew([], [])
    assert authentication.authenticate(request()) is anybody
    assert not anybody.revoked.is_set()
    authentication.renew(["a"], [])
    assert anybody.revoked.is_set()
    with pytest.raises(Unauthenticated):
        authentication.authenticate(request())
    authentication.renew([], [])
    assert not authentication.authenticate(request()).revoked.is_set()


def test_certificates_of_unchanged_users_stay_and_of_changed_ones_are_revoked() -> None:
    user = User("orders", certificate_name="orders-service", send=("x",))
    authentication = Authentication(host="10.0.0.7", users=[user], client_certificates=True)
    before = authentication.authenticate(request(CERTIFICATE))
    authentication.renew(["a"], [user])
    assert authentication.authenticate(request(CERTIFICATE)) is before
    authentication.renew(["a"], [User("orders", certificate_name="orders-service", send=("y",))])
    assert before.revoked.is_set()
    assert authentication.authenticate(request(CERTIFICATE)).may_send("y")
