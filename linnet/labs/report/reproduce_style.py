"""The style sheet of the page of `linnet reproduce`, on top of page.py: screen, phone, dark mode and print."""

from __future__ import annotations

STYLE = """
:root { --confirmed: #1f7a4a; --refuted: #b3352e; --unclear: #8f5b00; --not-testable: #626a75; --error: #7a3fb0; }
html { scroll-padding-top: .5rem; -webkit-text-size-adjust: 100%; }
h1 { font-size: clamp(1.45rem, 1.1rem + 1.6vw, 2.1rem); margin: .5rem 0; letter-spacing: -.01em; text-wrap: balance; }
h2 { border-top: 2px solid var(--ink); padding-top: .6rem; margin-top: 3rem; } h2 .soft { font-weight: 400; }
nav h2 { border: 0; margin-top: 1.6rem; padding: 0; } h3.paper { font-size: 1rem; margin: 1.4rem 0 .3rem; }
a { color: inherit; } a:focus-visible, summary:focus-visible { outline: 2px solid #3d85d1; outline-offset: 2px; }

.badge { display: inline-block; padding: .05rem .5rem; border-radius: 1rem; font-size: .8rem; font-weight: 600;
  line-height: 1.5; white-space: nowrap; color: #fff; }
.confirmed { background: var(--confirmed); } .refuted { background: var(--refuted); }
.unclear { background: var(--unclear); } .not-testable { background: var(--not-testable); }
.error { background: var(--error); }
.share { display: flex; gap: 2px; margin: 1.2rem 0 .6rem; border-radius: .4rem; overflow: hidden; }
.share span { flex-basis: 2.4rem; padding: .35rem 0; text-align: center; color: #fff; font-weight: 600; }
.legend { list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; max-width: none; }
.legend li { margin: 0; }

.board { list-style: none; margin: 0; padding: 0; max-width: none; border-top: 1px solid var(--line); }
.board li { margin: 0; border-bottom: 1px solid var(--line); }
.board a, .heads { display: grid; grid-template-columns: 7.2rem minmax(0, 1fr) minmax(0, 8rem) minmax(0, 10rem);
  gap: .1rem 1rem; align-items: baseline; padding: .4rem .3rem; text-decoration: none; line-height: 1.4; }
.heads { color: var(--soft); font-size: .8rem; padding: .2rem .3rem; }
.board a:hover { background: var(--card); } .board a:hover .asked { text-decoration: underline; }
.here small { display: block; font-weight: 400; font-size: .75rem; color: var(--soft); }
.board .badge { justify-self: start; } .here { font-weight: 700; grid-column: 3; } .theirs { grid-column: 4; }
.here, .theirs { font-variant-numeric: tabular-nums; overflow-wrap: break-word; } .theirs { color: var(--soft); }
.number { color: var(--soft); font-weight: 600; text-decoration: none; }
.what { display: block; font-size: .82rem; color: var(--soft); }

.wide { --under: var(--back); background:  /* a shade at an edge beyond which there is more */
    linear-gradient(to right, var(--under) 1.5rem, transparent) left / 3rem 100% no-repeat local,
    linear-gradient(to left, var(--under) 1.5rem, transparent) right / 3rem 100% no-repeat local,
    linear-gradient(to right, #8888, transparent) left / .8rem 100% no-repeat scroll,
    linear-gradient(to left, #8888, transparent) right / .8rem 100% no-repeat scroll; }
figure .wide { --under: var(--card); }
.claim { padding: 1.4rem 0 1.2rem; border-bottom: 1px solid var(--line); }
.claim:target > h3 { text-decoration: underline; text-decoration-color: var(--soft); }
.claim h3 { font-size: 1.2rem; line-height: 1.3; margin: 0 0 .4rem; max-width: 56rem; text-wrap: pretty; }
.why { font-size: 1.05rem; margin: .7rem 0; } .says { margin: .7rem 0; }
.body { display: grid; gap: 0 1.6rem; grid-template-columns: minmax(0, 1fr); }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; margin: .6rem 0 1rem; align-items: flex-start; }
.plots figure { flex: 1 1 20rem; min-width: 0; max-width: 29rem; }
.numbers { margin: .6rem 0; } .numbers table { width: 100%; }
.numbers th, .numbers td { white-space: normal; vertical-align: top; }
.numbers td:nth-child(3) { font-weight: 700; white-space: nowrap; } .numbers td:nth-child(4) { color: var(--soft); }
.numbers td:first-child { min-width: 8.5rem; }
.meaning { background: var(--card); border-left: 4px solid #3d85d1; padding: .6rem .9rem; margin: .9rem 0;
  border-radius: 0 .4rem .4rem 0; }
.errors { border-left: 4px solid var(--error); background: var(--card); padding: .5rem .9rem; margin: .7rem 0;
  overflow-wrap: anywhere; } .errors ul { margin: .2rem 0; padding-left: 1.2rem; }
.claim > details { margin: .5rem 0; } summary { cursor: pointer; color: var(--soft); font-size: .9rem; }
.short p { margin: .8rem 0 .2rem; }
.foot p { margin: .5rem 0; max-width: 60rem; }
.again { display: flex; flex-wrap: wrap; gap: .3rem 1rem; align-items: baseline; }
code { font: .88rem ui-monospace, monospace; background: var(--card); border: 1px solid var(--line);
  padding: .1rem .4rem; border-radius: .3rem; overflow-wrap: anywhere; user-select: all; }
.up { color: var(--soft); font-size: .9rem; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .2rem 1rem; font-size: .9rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }

@media (min-width: 60rem) {
  .body.one { grid-template: "lead plots" auto "rest plots" 1fr / minmax(0, 1fr) 27rem; }
  .body.one .lead { grid-area: lead; } .body.one .plots { grid-area: plots; } .body.one .rest { grid-area: rest; }
}
@media (max-width: 44rem) {
  .board a { display: block; padding: .6rem 0; } .heads { display: none; } .board .badge { margin-right: .4rem; }
  .here { margin-right: 1rem; } .here::before { content: "here "; font-weight: 400; color: var(--soft); }
  .theirs::before { content: "paper "; }
  .numbers table, .numbers thead, .numbers tbody { display: block; }
  .numbers tr { display: grid; grid-template-columns: 2fr 2fr 3fr; border-bottom: 1px solid var(--line); }
  .numbers th, .numbers td { border: 0; text-align: left; padding: .15rem .6rem .15rem 0; overflow-wrap: anywhere; }
  .numbers th:first-child, .numbers td:first-child { grid-column: 1 / -1; }
  dl { grid-template-columns: minmax(0, 1fr); } dd { margin-bottom: .4rem; }
}
@media print {
  :root { color-scheme: light; --ink: #000; --soft: #444; --line: #bbb; --back: #fff; --card: #fff; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  body { max-width: none; font-size: 10.5pt; padding: 0; } a { text-decoration: none; }
  .plots figure { max-width: 21rem; }
  .wide { overflow: visible; background: none; } th, td { white-space: normal; } .up { display: none; }
  figure, tr, .meaning, .board li, .share, .numbers, .foot { break-inside: avoid; }
  h2, h3, h4, .badge { break-after: avoid; } figure { border: 1px solid var(--line); }
  details::details-content { content-visibility: visible; display: block; block-size: auto; }
}
"""
