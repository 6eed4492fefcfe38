"""Which proxy lies on the way to a node: the setting's, the environment's, or none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.runtime.proxies import DIRECT, Proxy, ProxyInvalid, proxy_for, read_proxy

HUB = "wss://hub.example:61616"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://proxy:3128", Proxy("http", "proxy", 3128)),
        ("HTTP://proxy.example:3128/", Proxy("http", "proxy.example", 3128)),
        ("https://[::1]:443", Proxy("https", "::1", 443)),
        ("socks5://10.0.0.1:1080", Proxy("socks5", "10.0.0.1", 1080)),
        ("socks5h://proxy:1080", Proxy("socks5", "proxy", 1080)),
        ("http://me:secret@proxy:1", Proxy("http", "proxy", 1, "me", "secret")),
        ("http://me@proxy:1", Proxy("http", "proxy", 1, "me")),
        ("http://me:a/b@c:d?#@proxy:1", Proxy("http", "proxy", 1, "me", "a/b@c:d?#")),
        ("http://m%40e:50%25@proxy:1", Proxy("http", "proxy", 1, "m@e", "50%")),
    ],
)
def test_a_proxy_is_read_with_any_password(url: str, found: Proxy) -> None:
    assert read_proxy(url) == found


@pytest.mark.parametrize(
    "url",
    [
        "proxy:3128",
        "http://proxy",
        "http://proxy:0",
        "http://proxy:99999",
        "http://proxy:1/path",
        "http://proxy:1?x",
        "http://:1",
        "http://@proxy:1",
        "http://:secret@proxy:1",
        "http://a b:1",
        "http://pröxy:1",
        "socks4://proxy:1",
        "ftp://proxy:1",
        "http://[::zz]:1",
        f"http://me:{'x' * 256}@proxy:1",
        f"http://me:{'ü' * 128}@proxy:1",
        "http://me:\udcff@proxy:1",
        "",
    ],
)
def test_what_is_no_proxy_is_refused(url: str) -> None:
    with pytest.raises(
        ProxyInvalid, match=r"^must be http://host:port, https://host:port or socks5://host:port"
    ):
        read_proxy(url)


@given(st.text(min_size=1, max_size=60).filter(lambda text: ":" not in text), st.text(max_size=60))
def test_every_password_is_carried_as_it_is(user: str, password: str) -> None:
    proxy = read_proxy(f"http://{user}:{password}@proxy:1".replace("%", "%25"))
    assert (proxy.user, proxy.password) == (user, password)
    assert str(proxy) == "http://proxy:1 (proxy)"


def test_neither_user_nor_password_are_shown() -> None:
    proxy = read_proxy("http://alice:secret@proxy:3128")
    assert str(proxy) == "http://proxy:3128 (proxy)"
    assert "secret" not in repr(proxy)
    assert "alice" not in repr(proxy)


def test_the_setting_comes_before_the_environment() -> None:
    environ = {"HTTPS_PROXY": "http://other:1"}
    assert str(proxy_for("socks5://proxy:1080", HUB, environ)) == "socks5://proxy:1080 (proxy)"
    assert proxy_for(DIRECT, HUB, environ) is None
    assert str(proxy_for("http://proxy:1", "ws://127.0.0.1:1", {})) == "http://proxy:1 (proxy)"


@pytest.mark.parametrize(
    ("url", "environ", "shown"),
    [
        (HUB, {}, None),
        (HUB, {"HTTPS_PROXY": "http://a:1", "HTTP_PROXY": "http://b:1"}, "http://a:1 (HTTPS_PROXY)"),
        ("ws://hub:1", {"HTTPS_PROXY": "http://a:1", "HTTP_PROXY": "http://b:1"}, "http://b:1 (HTTP_PROXY)"),
        ("ws://hub:1", {"HTTPS_PROXY": "http://a:1"}, None),
        (HUB, {"ALL_PROXY": "socks5://a"}, "socks5://a:1080 (ALL_PROXY)"),
        (HUB, {"HTTPS_PROXY": "a.example:8080"}, "http://a.example:8080 (HTTPS_PROXY)"),
        (HUB, {"HTTPS_PROXY": "http://a"}, "http://a:80 (HTTPS_PROXY)"),
        (HUB, {"HTTPS_PROXY": "http://a:1", "https_proxy": "http://small:1"}, "http://small:1 (HTTPS_PROXY)"),
        (HUB, {"HTTPS_PROXY": "", "ALL_PROXY": "http://a:1"}, "http://a:1 (ALL_PROXY)"),
        ("wss://127.0.0.1:1", {"HTTPS_PROXY": "http://a:1"}, None),
        ("wss://[::1]:1", {"HTTPS_PROXY": "http://a:1"}, None),
        ("wss://localhost:1", {"HTTPS_PROXY": "http://a:1"}, None),
    ],
)
def test_the_environment_names_the_proxy(url: str, environ: dict[str, str], shown: str | None) -> None:
    found = proxy_for("", url, environ)
    assert (None if found is None else str(found)) == shown


@pytest.mark.parametrize(
    ("exceptions", "url", "excepted"),
    [
        ("hub.example", HUB, True),
        ("example", HUB, True),
        (".example", HUB, True),
        ("*.example", HUB, True),
        ("HUB.EXAMPLE", HUB, True),
        ("other, hub.example", HUB, True),
        ("other hub.example", HUB, True),
        ("ub.example", HUB, False),
        ("a.hub.example", HUB, False),
        ("*", HUB, True),
        ("hub.example:61616", HUB, True),
        ("hub.example:443", HUB, False),
        ("10.0.0.0/8", "wss://10.1.2.3:1", True),
        ("10.0.0.0/8", "wss://11.1.2.3:1", False),
        ("10.1.2.3", "wss://10.1.2.3:1", True),
        ("fd00::/8", "wss://[fd00::1]:1", True),
        ("[fd00::1]:1", "wss://[fd00::1]:1", True),
        ("[fd00::1]:2", "wss://[fd00::1]:1", False),
        ("", HUB, False),
        (",.,", HUB, False),
    ],
)
def test_no_proxy_excepts_hosts(exceptions: str, url: str, excepted: bool) -> None:
    environ = {"ALL_PROXY": "http://a:1", "NO_PROXY": exceptions}
    assert (proxy_for("", url, environ) is None) == excepted
    assert (proxy_for("", url, {"all_proxy": "http://a:1", "no_proxy": exceptions}) is None) == excepted


def test_a_variable_that_does_not_hold_is_named_and_not_shown() -> None:
    with pytest.raises(
        ProxyInvalid, match=r"^HTTPS_PROXY of the environment must be http://host:port"
    ) as caught:
        proxy_for("", HUB, {"HTTPS_PROXY": "gopher://me:secret@x"})
    assert "secret" not in str(caught.value)
