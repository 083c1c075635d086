"""Partners of a settings file: valid tables, and errors of invalid ones."""

from pathlib import Path

import pytest

from hubmere.settings import BadSettings, PartnerSetting, load

GOOD = """
[georecovery.partners.shop-west]
url = "https://west.example.org:5301/"
token = "a-secret"
ca_file = "west.pem"

[georecovery.partners.shop-north]
url = "http://10.0.0.7:5300"
token = "another"
"""


def a_file(folder: Path, text: str) -> Path:
    path = folder / "hubmere.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_partners_are_read_by_the_name_of_their_namespace(tmp_path: Path) -> None:
    """ARM clients use the same name."""
    settings = load({}, {}, a_file(tmp_path, GOOD))

    west = PartnerSetting(
        name="shop-west", url="https://west.example.org:5301", token="a-secret", ca_file=Path("west.pem")
    )
    north = PartnerSetting(name="shop-north", url="http://10.0.0.7:5300", token="another")
    assert settings.partners == (west, north)
    assert "a-secret" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('georecovery = "west"', "georecovery"),
        ("[georecovery]\nnodes = 2", "georecovery"),
        ("[georecovery]\npartners = 2", "georecovery"),
        ("[georecovery.partners]\nshop-west = 2", "georecovery.partners.shop-west"),
        ('[georecovery.partners.shop-west]\nurl = "https://a"', "georecovery.partners.shop-west"),
        ('[georecovery.partners.x]\nurl = "https://a"\ntoken = "t"', "georecovery.partners.x"),
        ('[georecovery.partners.shop-west]\nurl = "a:1"\ntoken = "t"', "georecovery.partners.shop-west.url"),
        ('[georecovery.partners.shop-west]\nurl = "https://a/b"\ntoken = "t"', "georecovery.partners.shop-west.url"),
        ('[georecovery.partners.shop-west]\nurl = "https://a:0"\ntoken = "t"', "georecovery.partners.shop-west.url"),
        ('[georecovery.partners.shop-west]\nurl = "https://a"\ntoken = 7', "georecovery.partners.shop-west.token"),
        (
            '[georecovery.partners.shop-west]\nurl = "https://a"\ntoken = "t"\ncafile = "x"',
            "georecovery.partners.shop-west.cafile",
        ),
    ],
)
def test_invalid_partner_is_reported_by_its_position(tmp_path: Path, text: str, place: str) -> None:
    """There is one problem for each error, with the expected value."""
    with pytest.raises(BadSettings) as refusal:
        load({}, {}, a_file(tmp_path, text))

    assert [problem.setting for problem in refusal.value.problems] == [place]


def test_an_error_never_contains_a_token(tmp_path: Path) -> None:
    """Settings problems are printed and logged."""
    text = '[georecovery.partners.shop-west]\nurl = "nowhere"\ntoken = "a-secret"\ntokn = "a-secret"\n'

    with pytest.raises(BadSettings) as refusal:
        load({}, {}, a_file(tmp_path, text))

    assert "a-secret" not in str(refusal.value)
