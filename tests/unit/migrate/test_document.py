"""What is read of a broker.xml, and what is refused: attacks, limits, files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.migrate import document
from bridge.migrate.document import NotBrokerXml, read
from bridge.migrate.migration import migrate

BOMB = (
    '<?xml version="1.0"?>\n<!DOCTYPE core [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]>\n'
    "<core><name>&b;</name></core>"
)
EXTERNAL = '<!DOCTYPE core [<!ENTITY file SYSTEM "file:///etc/hostname">]><core><name>&file;</name></core>'


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """broker.xml in the current directory, which is the test's own; not written yet."""
    monkeypatch.chdir(tmp_path)
    return Path("broker.xml")


def refusal(path: Path, content: str | bytes | None) -> str:
    """What a file with this content is refused with."""
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(NotBrokerXml) as refused:
        migrate(path, {})
    return str(refused.value)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "broker.xml: must be a file that can be read; found no such file or directory"),
        ("", "broker.xml:1: must be XML; found no element found"),
        ("<core>\n<name>a</core>", "broker.xml:2: must be XML; found mismatched tag"),
        (
            "<core>\n<name>&a;</name></core>",
            "broker.xml:2: must be XML; found undefined entity",
        ),
        (BOMB, "broker.xml:2: must have no DOCTYPE, and so no entities; found <!DOCTYPE"),
        (EXTERNAL, "broker.xml:1: must have no DOCTYPE, and so no entities; found <!DOCTYPE"),
        (
            '<!DOCTYPE core SYSTEM "http://a.example/core.dtd"><core/>',
            "broker.xml:1: must have no DOCTYPE, and so no entities; found <!DOCTYPE",
        ),
        (
            "\n<broker><web/></broker>",
            "broker.xml:2: must be <configuration>, Artemis's broker.xml; found <broker>",
        ),
        (
            '<beans xmlns="urn:beans"/>',
            "broker.xml:1: must be <configuration>, Artemis's broker.xml; found <urn:beans beans>",
        ),
        ("<a>" * 40 + "</a>" * 40, "broker.xml:1: must be at most 32 elements deep; found more"),
        (b"<core>\xff</core>", "broker.xml:1: must be XML; found not well-formed (invalid token)"),
    ],
)
def test_what_is_no_broker_xml_is_refused_with_its_line(
    broker: Path, content: str | bytes | None, line: str
) -> None:
    assert refusal(broker, content) == line


@pytest.mark.parametrize("encoding", ["no-such-encoding", "utf-7", "big5", "idna"])
def test_an_encoding_that_cannot_be_read_is_refused(broker: Path, encoding: str) -> None:
    told = refusal(broker, f'<?xml version="1.0" encoding="{encoding}"?><core/>')
    assert told.startswith("broker.xml")
    assert "\n" not in told


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_other_encodings_are_read(broker: Path, encoding: str) -> None:
    broker.write_bytes(f'<?xml version="1.0" encoding="{encoding}"?><core><a>é</a></core>'.encode(encoding))
    assert [child.text for child in read(broker).root.children] == ["é"]


def test_a_large_file_is_refused_before_it_is_parsed(broker: Path) -> None:
    content = b"<core>" + b" " * document.MAX_FILE_BYTES + b"</core>"
    assert refusal(broker, content) == "broker.xml: must be at most 1048576 bytes; found more"


def test_many_elements_are_refused(broker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MAX_ELEMENTS", 5)
    assert refusal(broker, f"<core>{'<a/>' * 4}\n<a/></core>") == (
        "broker.xml:2: must have at most 5 elements; found more"
    )
    assert len(read_text(broker, f"<core>{'<a/>' * 4}</core>")) == 4


def read_text(path: Path, text: str) -> list[str]:
    """The names of the elements in the root, with the line of each."""
    path.write_text(text)
    return [f"{child.name} {child.place}" for child in read(path).root.children]


def test_settings_that_would_be_too_large_are_refused(broker: Path) -> None:
    many = "".join(f'<address name="{"a" * 220}{number}"/>' for number in range(4000))
    assert refusal(broker, f"<core><addresses>{many}</addresses></core>") == (
        "broker.xml: must make settings of at most 1048576 bytes; found more"
    )


XI = 'xmlns:xi="http://www.w3.org/2001/XInclude"'


@pytest.mark.parametrize(
    "include",
    [
        'href="absent.xml"',
        'href="../outside.xml"',
        'href="/etc/hostname"',
        'href="file:///etc/hostname"',
        'href="http://a.example/a.xml"',
        'href="inner.xml" parse="text"',
        'href="inner.xml" xpointer="a"',
        'href="broker.xml"',
        f'href="{"a" * 5000}"',
        "",
    ],
)
def test_an_include_that_is_not_local_and_whole_is_named_and_not_followed(
    broker: Path, tmp_path: Path, include: str
) -> None:
    directory = tmp_path / "etc"
    directory.mkdir()
    (tmp_path / "outside.xml").write_text("<name>outside</name>")
    (directory / "inner.xml").write_text("<name>inner</name>")
    path = directory / "broker.xml"
    path.write_text(f"<core {XI}>\n<xi:include {include}/></core>")
    (remark,) = migrate(path, {}).remarks
    assert (remark.place.line, remark.what) == (2, "xi:include")
    assert remark.text.startswith("not followed")


def test_an_include_beside_or_below_is_followed_and_its_lines_are_its_own(broker: Path) -> None:
    Path("more").mkdir()
    Path("more/inner.xml").write_text(
        f'<addresses {XI}>\n\n<address name="a"><anycast><queue name="a"/></anycast></address>'
        '<xi:include href="b.xml"/></addresses>'
    )
    Path("more/b.xml").write_text(
        '<address name="b"><multicast><queue name="q" ring-size="3"/></multicast></address>'
    )
    broker.write_text(f'<core {XI}><xi:include href="more/inner.xml"/></core>')
    migration = migrate(broker, {})
    assert "[addresses.a]" in migration.text
    (remark,) = migration.remarks
    assert (str(remark.place), remark.what) == ("more/b.xml:1", "address b: queue q: ring-size")


def test_an_include_whose_name_has_a_property_is_followed_and_its_default_is_named(broker: Path) -> None:
    Path("more").mkdir()
    Path("more/inner.xml").write_text("<name>${who}</name>")
    broker.write_text(f'<core {XI}>\n<xi:include href="${{directory:more}}/inner.xml"/></core>')
    migration = migrate(broker, {"who": "hub"})
    assert 'name = "hub"' in migration.text
    (remark,) = migration.remarks
    assert str(remark).startswith("broker.xml:2: check: xi:include: a property: its default is taken")
    Path("other").mkdir()
    Path("other/inner.xml").write_text("<name>other</name>")
    migration = migrate(broker, {"directory": "other"})
    assert 'name = "other"' in migration.text
    assert migration.remarks == []


def test_an_include_that_is_not_followed_is_named_with_its_properties_filled_in(broker: Path) -> None:
    broker.write_text(f'<core {XI}>\n<xi:include href="${{directory}}/inner.xml"/></core>')
    (remark,) = migrate(broker, {"directory": "../elsewhere"}).remarks
    assert str(remark) == (
        "broker.xml:2: left: xi:include: not followed: only small files beside or below this one are; "
        "found ../elsewhere/inner.xml"
    )


def test_includes_in_a_circle_and_too_many_end(broker: Path) -> None:
    Path("a.xml").write_text(f'<addresses {XI}><xi:include href="b.xml"/></addresses>')
    Path("b.xml").write_text(f'<address name="b" {XI}><xi:include href="a.xml"/></address>')
    many = '\n<xi:include href="name.xml"/>' * (document.MAX_INCLUDES + 1)
    Path("name.xml").write_text("<persist-id-cache>true</persist-id-cache>")
    broker.write_text(f'<core {XI}><xi:include href="a.xml"/>{many}</core>')
    told = [str(remark.place) for remark in migrate(broker, {}).remarks if "xi:include" in remark.what]
    assert "b.xml:1" in told
    assert len(told) == 1 + 3  # the two files of the circle count, too


def test_an_included_file_that_is_no_xml_is_refused_by_its_own_name(broker: Path) -> None:
    Path("inner.xml").write_text(BOMB)
    told = refusal(broker, f'<core {XI}><xi:include href="inner.xml"/></core>')
    assert told == "inner.xml:2: must have no DOCTYPE, and so no entities; found <!DOCTYPE"
