"""The style sheet of the page of an estimate: light, dark, wide and narrow."""

from __future__ import annotations

_LIGHT = """
  --ink: #141b24; --faded: #566270; --line: #c3cbd3; --paper: #ffffff; --ground: #f2f5f8; --page: #f6f8fa;
  --accent: #0b63b5; --warm: #c2410c; --shade: 0 1px 2px #0b1a2b14, 0 6px 20px #0b1a2b0a;
  --compute: #0072b2; --dram: #e69f00; --noc: #56b4e9; --link: #009e73; --dispatch: #8d98a3; --host: #cc79a7;
  --heat-0: #fde8b5; --heat-1: #fbc77a; --heat-2: #f79a56; --heat-3: #e76a4e; --heat-4: #c23f62; --heat-5: #8a2572;
  --heat-6: #4a1568;
  --area: #0072b233; --area-edge: #0072b2;
  --tint-0: #8fc1ee; --tint-1: #f6b873; --tint-2: #86d3b0; --tint-3: #eeaacb; --tint-4: #f1e27e; --tint-5: #bfb6ee;
  --tint-6: #d8b79b; --tint-7: #c6cdd4;
"""
_DARK = """
  --ink: #e8edf2; --faded: #9aa7b4; --line: #3d4854; --paper: #161c24; --ground: #1f2731; --page: #0e1318;
  --accent: #6cb2f4; --warm: #fb923c; --shade: 0 1px 2px #0008, 0 6px 20px #0005;
  --compute: #4aa3df; --dram: #f0b429; --noc: #8fd0f5; --link: #2fc79b; --dispatch: #8d98a3; --host: #e59bc6;
  --heat-0: #3b2d5e; --heat-1: #6a2f7a; --heat-2: #9c3a78; --heat-3: #cc4d66; --heat-4: #ec7650; --heat-5: #f9ab4f;
  --heat-6: #fde489;
  --area: #4aa3df40; --area-edge: #4aa3df;
  --tint-0: #6ea4d6; --tint-1: #d99a56; --tint-2: #68b493; --tint-3: #cf8bae; --tint-4: #cdbf5e; --tint-5: #a097d6;
  --tint-6: #b99a80; --tint-7: #a0a9b2;
"""

STYLE = (
    f"""
:root {{ color-scheme: light; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{ color-scheme: dark; {_DARK} }} }}
:root[data-theme=dark] {{ color-scheme: dark; {_DARK} }}
"""
    + """
* { box-sizing: border-box; }
html { scroll-padding-top: 4rem; }
body { margin: 0; background: var(--page); color: var(--ink);
       font: 15px/1.55 system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif; }
code, .mono { font-family: ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace;
      font-size: .92em; }
main { max-width: 1320px; margin: 0 auto; padding: 0 1.25rem 4rem; }
header.top { max-width: 1320px; margin: 0 auto; padding: 1.6rem 1.25rem .4rem; }
header.top h1 { font-size: 1.55rem; line-height: 1.25; margin: 0 0 .25rem; letter-spacing: -.01em;
      overflow-wrap: anywhere; }
header.top p { margin: 0; color: var(--faded); }
nav { position: sticky; top: 0; z-index: 5; background: color-mix(in srgb, var(--page) 88%, transparent);
      backdrop-filter: blur(8px); border-bottom: 1px solid var(--line); }
nav > div { max-width: 1320px; margin: 0 auto; padding: .5rem 1.25rem; display: flex; gap: .3rem 1.1rem;
            align-items: center; flex-wrap: wrap; }
nav a { color: var(--faded); text-decoration: none; font-size: .92rem; white-space: nowrap; }
nav a:hover, nav a:focus-visible { color: var(--accent); text-decoration: underline; }
nav .tools { margin-left: auto; display: flex; gap: .5rem; flex: 1 1 15rem; justify-content: flex-end; }
input[type=search] { font: inherit; font-size: .92rem; color: inherit; background: var(--paper);
      border: 1px solid var(--line);
      border-radius: 8px; padding: .28rem .7rem; width: 100%; max-width: 20rem; }
button { font: inherit; color: inherit; cursor: pointer; }
.tools button, .zoom button { font-size: .88rem; background: var(--paper); border: 1px solid var(--line);
      border-radius: 8px;
      padding: .28rem .7rem; white-space: nowrap; }
.tools button:hover, .zoom button:hover { border-color: var(--accent); color: var(--accent); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 14px;
      padding: 1.15rem 1.3rem 1.3rem;
          margin: 1.1rem 0 0; box-shadow: var(--shade); }
h2 { font-size: 1.12rem; margin: 0 0 .15rem; letter-spacing: -.005em; }
h3 { font-size: .98rem; margin: 1.3rem 0 .3rem; }
.lead { color: var(--faded); margin: 0 0 .9rem; max-width: 75ch; }
.note { color: var(--faded); font-size: .88rem; margin: .5rem 0 0; }
.failed { border-color: var(--warm); border-left-width: 5px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.2rem, 1fr)); gap: .8rem;
      margin: 1.1rem 0 0; }
.card { background: var(--paper); border: 1px solid var(--line); border-radius: 14px; padding: .8rem 1rem .85rem;
        box-shadow: var(--shade); min-width: 0; }
.card .what { color: var(--faded); font-size: .82rem; }
.card .figure { font-size: 1.5rem; font-weight: 650; line-height: 1.25; letter-spacing: -.015em;
                font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.card .more { color: var(--faded); font-size: .84rem; overflow-wrap: anywhere; }
.gauge { display: block; height: 6px; border-radius: 3px; background: var(--ground); margin: .45rem 0 .1rem;
      overflow: hidden; }
.gauge i { display: block; height: 100%; background: var(--compute); border-radius: 3px; }
.gauge.full i { background: var(--warm); }
.stack { display: flex; height: 30px; border-radius: 8px; overflow: hidden; background: var(--ground); }
.stack i { display: block; min-width: 1px; border-right: 1px solid var(--paper); }
.stack i:last-child { border-right: 0; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.2rem; margin: .55rem 0 0; font-size: .9rem; }
.dot { display: inline-block; width: .72em; height: .72em; border-radius: 3px; margin-right: .45em; }
.scroll { overflow-x: auto; max-height: 31rem; overflow-y: auto; margin: .6rem -.3rem 0; padding: 0 .3rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
thead th { position: sticky; top: 0; background: var(--paper); z-index: 1; text-align: left; padding: 0;
           box-shadow: inset 0 -1px var(--line); }
th button { border: 0; background: none; font-weight: 600; color: var(--faded); padding: .35rem .9rem .35rem 0;
      white-space: nowrap; }
th button:hover { color: var(--accent); }
th.number button { width: 100%; text-align: right; }
th[aria-sort=ascending] button::after { content: ' ↑'; color: var(--accent); }
th[aria-sort=descending] button::after { content: ' ↓'; color: var(--accent); }
td { padding: .26rem .9rem .26rem 0; border-bottom: 1px solid var(--ground); vertical-align: baseline; }
td.number, td code, td.plain { white-space: nowrap; }
td.number { text-align: right; }
tbody tr:hover td { background: var(--ground); }
td .source { color: var(--faded); display: inline-block; max-width: clamp(11rem, 28vw, 34rem);
             overflow: hidden; text-overflow: ellipsis;
             white-space: nowrap; vertical-align: bottom; }
.bar { display: inline-block; width: clamp(2.5rem, 8vw, 7rem); height: .62em; border-radius: 3px;
      background: var(--ground); margin-right: .6em;
       text-align: left; overflow: hidden; }
.bar i { display: block; height: 100%; border-radius: 3px; }
.unsure { color: var(--faded); }
svg { height: auto; max-width: 100%; display: block; }
.full svg { width: 100%; }
.cable:hover { stroke-width: 7; }
#timeline { width: 100%; display: block; touch-action: pan-y; cursor: grab; border-radius: 6px; }
#timeline:active { cursor: grabbing; }
.frame { max-height: 34rem; overflow-y: auto; }
.zoom { display: flex; gap: .5rem; flex-wrap: wrap; align-items: center; margin: 0 0 .6rem; }
.zoom .note { margin: 0; }
#tip { position: fixed; z-index: 20; pointer-events: none; background: var(--ink); color: var(--paper);
      border-radius: 8px;
       padding: .45rem .7rem; font-size: .85rem; line-height: 1.4; max-width: 26rem; white-space: pre-line;
      display: none; }
footer { max-width: 1320px; margin: 0 auto; padding: 0 1.25rem 2rem; color: var(--faded); font-size: .86rem; }
.none { display: none; }
@media (max-width: 640px) {
  section { padding: .9rem .9rem 1rem; border-radius: 12px; }
  .cards { grid-template-columns: repeat(auto-fit, minmax(9.2rem, 1fr)); gap: .6rem; }
  .card .figure { font-size: 1.25rem; }
  td code { white-space: normal; overflow-wrap: anywhere; display: inline-block; min-width: 6.5rem; max-width: 10rem; }
  td .source { white-space: nowrap; }
  main, header.top, nav > div { padding-left: .8rem; padding-right: .8rem; }
  nav .tools { flex-basis: 100%; justify-content: stretch; }
  input[type=search] { max-width: none; }
}
@media print { nav, .zoom { display: none; } .scroll, .frame { max-height: none; } section { break-inside: avoid;
      box-shadow: none; } }
"""
)
