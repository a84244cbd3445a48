"""Figures of accounts (extra: plot). Each function takes ``ax=`` and returns the Axes.

Without ``ax`` a new pyplot figure is made, so that notebooks show it. Colours are Tol's
high-contrast set, which stays apart for colour-blind eyes and in grey; hatching says how a time
is known: none = measured, stripes = estimated, dots = computed.
"""

from nsysacct.plots._curves import acceptance, curve, trend
from nsysacct.plots._rounds import rounds
from nsysacct.plots._save import FORMATS, new_axes, save
from nsysacct.plots._split import split, split_height
from nsysacct.plots._timeline import timeline
from nsysacct.plots._waterfall import waterfall

__all__ = [
    "FORMATS",
    "acceptance",
    "curve",
    "new_axes",
    "rounds",
    "save",
    "split",
    "split_height",
    "timeline",
    "trend",
    "waterfall",
]
