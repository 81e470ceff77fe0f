"""The colours of the parts of a step, as people see them who lack one kind of cone, and their marks in text."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from advisor.render.page import Page, Room
from advisor.vocabulary.parts import LOOKS, PARTS

APART = 10  # CIELAB's distance: 2 is just noticed side by side
SIGHT = {  # linear RGB to what is seen: Machado, Oliveira and Fernandes 2009, severity 1
    "every cone": np.eye(3),
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ.sum(axis=1)


def lab(colour, sight):
    """A colour as #rrggbb in CIELAB, as seen."""
    encoded = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    part = TO_XYZ @ np.clip(np.array(SIGHT[sight]) @ linear, 0, 1) / WHITE
    x, y, z = np.where(part > 0.008856, np.cbrt(part), 7.787 * part + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_the_distance_of_black_and_white_is_the_whole_lightness():
    assert np.linalg.norm(lab("#ffffff", "every cone") - lab("#000000", "every cone")) == pytest.approx(100, abs=0.1)


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_no_two_parts_look_alike(theme, sight):
    colours = {part.look.colour for part in PARTS.values()}
    colours_of = {colour: lab((colour.light, colour.dark)[theme], sight) for colour in colours}
    assert len(colours_of) > 12
    apart = {(a, b): np.linalg.norm(colours_of[a] - colours_of[b]) for a, b in combinations(colours_of, 2)}
    assert min(apart.values()) > APART, min(apart, key=apart.get)


@pytest.mark.parametrize("unicode", [True, False])
def test_no_two_parts_of_a_bar_have_one_mark(unicode):
    """Work of a device and of the host, and stages of loading, are in bars of their own."""
    host = {"callback", "between", "operators"}
    for codes in ({*PARTS} - host, host | {"no_cpu", "other_programs", "own_processes"}, {*LOOKS} - {*PARTS}):
        page = Page(80, Room(), color=False, unicode=unicode)
        page.add("".join(LOOKS[code].glyph for code in sorted(codes)))
        assert len(set(page.text().strip())) == len(codes)


def test_no_mark_is_a_letter_which_a_legend_would_show_as_a_name():
    assert not [code for code, look in LOOKS.items() if look.glyph.isalnum()]
