"""The style sheet of every page: light and dark, narrow and wide, on screen and on paper."""

from __future__ import annotations

from typing import Final

# The palette is Okabe and Ito's, which colour-blind readers can tell apart, without its yellow;
# its order puts the strongest contrasts first. The dark one is the same, lighter.
_BASE: Final = """
:root { color-scheme: light dark; --paper: #fcfcfa; --ink: #1d2127; --soft: #5c6470;
  --rule: #e3e4e0; --wash: #f3f3ef; --shade: #1d212733; --good: #00694d; --bad: #a63d00;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b8608f; --c4: #b37800; --c5: #3a9bd6;
  --c6: #6b6b6b; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181c; --ink: #e6e7e9; --soft: #9aa2ad;
  --rule: #2d3138; --wash: #1e2126; --shade: #8fa3bf55; --good: #4fd0a5; --bad: #ff9d5c;
  --c0: #58b4f0; --c1: #ff8b3d; --c2: #2fc79a; --c3: #e39ac0; --c4: #f0b429; --c5: #9fd6ff;
  --c6: #b5b5b5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 1200px; background: var(--paper);
  color: var(--ink); font: 15px/1.55 system-ui, "Segoe UI", "DejaVu Sans", sans-serif;
  overflow-wrap: break-word; -webkit-text-size-adjust: 100%; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; letter-spacing: -.01em; }
h2 { font-size: 1.15rem; margin: 2.8rem 0 .6rem; padding-top: 1rem;
  border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p { margin: .4rem 0; max-width: 75ch; }
.sub, .note { color: var(--soft); }
.lead { font-size: 1.1rem; margin-top: 1rem; }
.good { color: var(--good); } .bad { color: var(--bad); }
small { color: var(--soft); }
dl { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: .2rem 1.4rem;
  margin: .4rem 0; }
dt { color: var(--soft); } dd { margin: 0; min-width: 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: .7rem;
  margin: 1.2rem 0; padding: 0; list-style: none; }
.tiles li { background: var(--wash); border-radius: 6px; padding: .6rem .8rem; }
.tiles b { display: block; font-size: 1.25rem; font-weight: 600; line-height: 1.3;
  font-variant-numeric: tabular-nums; }
"""
# A shadow at an edge says that the table goes on there: two gradients of the paper's colour move
# with the content and cover the shadows, which stay, where there is nothing more to see.
_TABLES: Final = """
.scroll { overflow-x: auto; background:
  linear-gradient(90deg, var(--paper) 40%, transparent) 0 0 / 48px 100% no-repeat local,
  linear-gradient(-90deg, var(--paper) 40%, transparent) 100% 0 / 48px 100% no-repeat local,
  linear-gradient(90deg, var(--shade), transparent) 0 0 / 16px 100% no-repeat scroll,
  linear-gradient(-90deg, var(--shade), transparent) 100% 0 / 16px 100% no-repeat scroll; }
.scroll:focus-visible { outline: 2px solid var(--c0); outline-offset: 2px; }
.hint { display: none; color: var(--soft); font-size: .85rem; margin: 0; }
@media (max-width: 600px) { .hint.over1 { display: block; } }
@media (max-width: 900px) { .hint.over2 { display: block; } }
@media (max-width: 1150px) { .hint.over3 { display: block; } }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .3rem 0 .8rem;
  min-width: 100%; font-size: .88rem; }
.caption { color: var(--soft); font-size: .88rem; margin: .8rem 0 .2rem; }
th, td { padding: .32rem .5rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--rule); }
tr > :first-child { text-align: left; padding-left: .2rem; position: sticky; left: 0;
  background: var(--paper); }
thead th { font-weight: 600; color: var(--soft); font-size: .82rem; vertical-align: bottom; }
tbody th { font-weight: 500; }
tr.baseline td { background: color-mix(in srgb, var(--wash) 85%, transparent); }
tr.baseline th { background: var(--wash); }
"""
_CHARTS: Final = """
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.3rem; list-style: none; padding: 0;
  margin: .6rem 0; font-size: .92rem; }
.legend i { font-style: normal; display: inline-block; min-width: 1.1em; text-align: center; }
.swatch { vertical-align: middle; margin-right: .4rem; }
.block { display: inline-block; width: 1.1em; height: .75em; border-radius: 2px;
  margin-right: .4rem; }
.grid-of { display: grid; gap: 1.4rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 430px), 1fr)); }
.grid-of.lone { grid-template-columns: 1fr; }
figure { margin: .8rem 0; min-width: 0; }
figcaption.head { font-size: .9rem; font-weight: 600; margin-bottom: .4rem; }
.chart { --left: 66px; display: block; overflow: visible; margin-left: var(--left);
  width: calc(100% - var(--left) - 18px); }
.chart.rows { --left: 122px; } .chart.forest { --left: 2px; }
.chart text { font-size: 12px; fill: var(--soft); }
.chart .label { fill: var(--ink); font-variant-numeric: tabular-nums; }
.chart .group { fill: var(--ink); font-weight: 600; }
.chart .mid { text-anchor: middle; } .chart .end { text-anchor: end; }
.chart .grid { stroke: var(--rule); fill: none; } .chart .axis { stroke: var(--soft); fill: none; }
.forest .label { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; }
.stretched { overflow: visible; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
.area { opacity: .18; stroke: none; }
.chart .dot { stroke: var(--paper); stroke-width: 1.5; }
.held { stroke: var(--paper); stroke-width: .7; } .held.thin { stroke: none; }
.wait { stroke: none; opacity: .28; }
.down { fill: var(--bad); opacity: .3; stroke: none; }
.lane { fill: var(--wash); }
.chart .count { fill: #fff; font-size: 10.5px; text-anchor: middle; pointer-events: none; }
.chart .mark { fill: var(--ink); font-size: 11px; text-anchor: middle; }
.chart .mark.bad { fill: var(--bad); font-size: 15px; font-weight: 700; }
.s1 { opacity: .22; } .s2 { opacity: .45; } .s3 { opacity: .7; } .s4 { opacity: 1; }
@media (prefers-color-scheme: dark) { .chart .count { fill: #000; } }
@media (max-width: 600px) {
  body { padding: 1.4rem 1rem 3rem; } h1 { font-size: 1.4rem; }
  .chart { --left: 60px; } .chart.rows { --left: 104px; }
  .chart.rows .label { font-size: 11px; }
  .chart .odd { display: none; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .4rem; }
}
"""
_PRINT: Final = """
@media print {
  @page { margin: 14mm; }
  :root { color-scheme: light; --paper: #fff; --ink: #000; --soft: #444; --rule: #ccc;
    --wash: #f3f3ef; --shade: transparent; --good: #00694d; --bad: #a63d00; --c0: #0072b2;
    --c1: #d55e00; --c2: #009e73; --c3: #b8608f; --c4: #b37800; --c5: #3a9bd6; --c6: #6b6b6b; }
  body { max-width: none; padding: 0; font-size: 10pt; print-color-adjust: exact;
    -webkit-print-color-adjust: exact; }
  .scroll { overflow: visible; background: none; } .hint { display: none !important; }
  table { font-size: 7.5pt; } th, td { padding: .2rem .3rem; }
  h2, h3, .caption { break-after: avoid; } p { orphans: 4; }
  figure, tr, .tiles { break-inside: avoid; }
  .chart .count { fill: #fff; }
}
"""
_COLOURS: Final = "".join(
    f".c{k} {{ stroke: var(--c{k}); }} "
    f".dot.c{k}, .area.c{k}, .held.c{k}, .wait.c{k} {{ fill: var(--c{k}); }} "
    f".block.c{k} {{ background: var(--c{k}); }}\n"
    for k in range(7)
)
# The rules of one colour come first: what has no outline says so further down.
STYLE: Final = f"{_COLOURS}{_BASE}{_TABLES}{_CHARTS}{_PRINT}"
