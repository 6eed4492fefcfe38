"""What is never shown: one list for logs and for what is said of a settings file."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from bridge.runtime import logs, secret_values
from bridge.settings import SettingsInvalid, load

SECRET = "s3cr3t-value"


@pytest.mark.parametrize("key", ["token", "Tokens", "ssl-password", "sasl_plain_password", "mytoken",
    "passphrase", "client-secret", "credentials", "Authorization", "proxy-authorization"])  # fmt: skip
def test_keys_of_secrets(key: str) -> None:
    assert secret_values.is_secret(key)


def test_a_proxy_with_a_password_is_not_shown() -> None:
    """A password may have a slash, where a URL's user would end."""
    assert secret_values.holds_secret("proxy", "http://me:a/b@proxy:1")
    assert not secret_values.holds_secret("proxy", "http://proxy:1")
    assert secret_values.holds_secret("token", "x")


@pytest.mark.parametrize("key", ["", "key", "token-file", "secretary", "tokens-to-hub", "authorization-url"])
def test_keys_of_other_things(key: str) -> None:
    assert not secret_values.is_secret(key)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ws://user:a@hub:1/v1", "ws://***@hub:1/v1"),
        ("kafka://user:p@ss@hub:1", "kafka://***@hub:1"),
        ("//a@hub", "//***@hub"),
        ("ws://a@h1,ws://b@h2", "ws://***@h1,ws://***@h2"),
        ("Authorization: Bearer abc.def ghi", "Authorization: Bearer *** ghi"),
        ("ws://hub:1/v1 from a@b.example", "ws://hub:1/v1 from a@b.example"),
    ],
)
def test_secrets_in_texts(text: str, shown: str) -> None:
    assert secret_values.without_secrets(text) == shown


@pytest.mark.parametrize("key", ["token", "password", "passphrase", "secret", "credentials", "authorization"])
def test_what_logs_hide_settings_hide_and_the_other_way_round(key: str, tmp_path: Path) -> None:
    stream = io.StringIO()
    logs.configure("info", "json", "node", stream)
    logs.get().info("x", **{key: SECRET})
    file = tmp_path / "settings.toml"
    file.write_text(f'[node]\n{key} = "{SECRET}"\n')
    with pytest.raises(SettingsInvalid) as invalid:
        load(file, {})
    for text in (stream.getvalue(), str(invalid.value)):
        assert SECRET not in text
        assert "***" in text
