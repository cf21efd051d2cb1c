"""The style sheet of the page of `linnet reproduce`, on top of page.py: screen, phone, dark mode, filters and print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.verdicts import ERROR, OUTCOMES
from .outcomes import slug

STYLE = """
:root { --holds: #1f7a4a; --does-not-hold: #b3352e; --too-close-to-call: #8f5b00; --not-tested-here: #626a75;
  --error: #7a3fb0; --seen: #1f7a4a; --not-seen: #b3352e; --link: #2467ab; }
@media (prefers-color-scheme: dark) { :root { --seen: #6fc997; --not-seen: #f08a83; --link: #7fb3ea; } }
html { scroll-padding-top: .5rem; -webkit-text-size-adjust: 100%; }
body { max-width: 84rem; }
h1 { font-size: clamp(1.45rem, 1.1rem + 1.6vw, 2.1rem); margin: .5rem 0; letter-spacing: -.01em; text-wrap: balance; }
h2 { border-top: 2px solid var(--ink); padding-top: .6rem; margin-top: 3rem; } h2 .soft { font-weight: 400; }
#glance h2 { border: 0; margin: 0; padding: 0; } h3.paper { font-size: 1rem; margin: 1.4rem 0 .3rem; }
a { color: inherit; } a:focus-visible, summary:focus-visible { outline: 2px solid #3d85d1; outline-offset: 2px; }

.badge { display: inline-block; padding: .05rem .5rem; border-radius: 1rem; font-size: .8rem; font-weight: 600;
  line-height: 1.5; white-space: nowrap; color: #fff; }
.holds { background: var(--holds); } .does-not-hold { background: var(--does-not-hold); }
.too-close-to-call { background: var(--too-close-to-call); } .not-tested-here { background: var(--not-tested-here); }
.error { background: var(--error); }
.seen-here, .not-seen-here { background: none; box-shadow: inset 0 0 0 1.5px currentColor; }
.seen-here, .share .seen-here { color: var(--seen); } .not-seen-here, .share .not-seen-here { color: var(--not-seen); }
.share { display: flex; gap: 2px; margin: 1.2rem 0 .6rem; border-radius: .4rem; overflow: hidden; }
.share span { flex-basis: 2.6rem; padding: .35rem 0; text-align: center; color: #fff; font-weight: 600; }
.legend { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); gap: .6rem 1.6rem; }
.legend > div > b { display: block; font-size: .85rem; color: var(--soft); }
.legend > div > b::first-letter, .filter legend::first-letter { text-transform: uppercase; }
.legend ul { list-style: none; margin: 0; padding: 0; } .legend li { margin: .25rem 0; line-height: 1.4; }

aside { margin: 1.6rem 0; }
.filter fieldset { border: 0; margin: 0 0 .5rem; padding: 0; display: flex; flex-wrap: wrap; gap: .3rem; min-width: 0; }
.filter legend { padding: 0 0 .2rem; font-size: .85rem; font-weight: 700; color: var(--soft); }
.filter input, .contents input { position: absolute; opacity: 0; width: 1px; height: 1px; margin: 0; }
.filter label, .contents > label { border: 1px solid var(--line); border-radius: 1rem; padding: .15rem .6rem;
  font-size: .85rem; line-height: 1.5; cursor: pointer; } .filter small { color: var(--soft); }
.filter label:hover { background: var(--card); }
.filter input:checked + label { background: var(--ink); color: var(--back); }
.filter input:checked + label small { color: inherit; }
.filter input:focus-visible + label, .contents input:focus-visible + label {
  outline: 2px solid #3d85d1; outline-offset: 2px; }
.contents > div { font-size: .85rem; line-height: 1.35; } .contents > label { display: inline-block; }
.contents section { margin: .7rem 0; } .contents ol { list-style: none; margin: .2rem 0 0; padding: 0; }
.contents li { margin: 0; } .contents a { text-decoration: none; } .contents a:hover { text-decoration: underline; }
.contents li a { display: block; padding: .12rem 0; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.mark { display: inline-block; min-width: 1.5rem; text-align: center; font-weight: 700; background: none;
  box-shadow: none; }
.mark.holds, .mark.seen-here { color: var(--seen); }
.mark.does-not-hold, .mark.not-seen-here { color: var(--not-seen); }
.nothing { display: none; }

.board { list-style: none; margin: 0; padding: 0; max-width: none; border-top: 1px solid var(--line); }
.board li { margin: 0; border-bottom: 1px solid var(--line); }
.board a, .heads { display: grid; grid-template-columns: 8.6rem minmax(0, 1fr) minmax(0, 8.5rem) minmax(0, 9rem);
  gap: .1rem 1rem; align-items: baseline; padding: .5rem .3rem; text-decoration: none; line-height: 1.4; }
.heads { color: var(--soft); font-size: .8rem; padding: .2rem .3rem; }
.board a:hover { background: var(--card); } .board a:hover .statement { text-decoration: underline; }
.answer { display: block; font-weight: 600; }
.here small { display: block; font-weight: 400; font-size: .75rem; color: var(--soft); }
.board .badge { justify-self: start; } .here { font-weight: 700; grid-column: 3; } .theirs { grid-column: 4; }
.here, .theirs { font-variant-numeric: tabular-nums; overflow-wrap: break-word; } .theirs { color: var(--soft); }
.number { color: var(--soft); font-weight: 600; text-decoration: none; }
.what { display: block; font-size: .82rem; color: var(--soft); overflow-wrap: anywhere; }

.wide { --under: var(--back); background:  /* a shade at an edge beyond which there is more */
    linear-gradient(to right, var(--under) 1.5rem, transparent) left / 3rem 100% no-repeat local,
    linear-gradient(to left, var(--under) 1.5rem, transparent) right / 3rem 100% no-repeat local,
    linear-gradient(to right, #8888, transparent) left / .8rem 100% no-repeat scroll,
    linear-gradient(to left, #8888, transparent) right / .8rem 100% no-repeat scroll; }
figure .wide { --under: var(--card); }
.claim { padding: 1.4rem 0 1.2rem; border-bottom: 1px solid var(--line); overflow-wrap: break-word; }
.claim:target > h3 { text-decoration: underline; text-decoration-color: var(--soft); }
.claim h3 { font-size: 1.2rem; line-height: 1.3; margin: 0 0 .4rem; max-width: 56rem; text-wrap: pretty; }
.verdict, .deciding { margin: .4rem 0; font-size: 1.05rem; } .deciding b { font-size: 1.25rem; }
.deciding, .compared { font-variant-numeric: tabular-nums; } .scope { display: block; font-size: .9rem; }
.why { margin: .7rem 0; } .says { margin: .7rem 0; }
.compared { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 1fr)); gap: .4rem 1.4rem;
  border: 1px solid var(--line); border-radius: .4rem; padding: .6rem .9rem; margin: .8rem 0; max-width: 60rem; }
.compared > div > b { display: block; font-size: .85rem; color: var(--soft); }
.agreement { grid-column: 1 / -1; margin: 0; max-width: none; } .agreement.differs b { color: var(--not-seen); }
.agreement.agrees b { color: var(--seen); } .agreement.adds-nothing, .agreement.not-run { color: var(--soft); }
.body { display: grid; gap: 0 1.6rem; grid-template-columns: minmax(0, 1fr); }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; margin: .6rem 0 1rem; align-items: flex-start; }
.plots figure { flex: 1 1 20rem; min-width: 0; max-width: 29rem; }
.belief { border-left: 4px solid var(--line); padding: .1rem 0 .1rem .9rem; margin: .9rem 0; max-width: 60rem; }
.belief dl { grid-template-columns: minmax(5rem, max-content) minmax(0, 1fr); margin: .3rem 0; }
.belief dt { max-width: 8rem; }
.belief ul { list-style: none; margin: 0; padding: 0; } .belief li { margin: 0 0 .2rem; }
.passed { color: var(--seen); font-weight: 600; } .failed { color: var(--not-seen); font-weight: 600; }
.numbers { margin: .6rem 0; } .numbers table { width: 100%; }
.numbers th, .numbers td { white-space: normal; vertical-align: top; }
.numbers td:nth-child(3) { font-weight: 700; white-space: nowrap; } .numbers td:nth-child(4) { color: var(--soft); }
.numbers td:first-child { min-width: 8.5rem; }
.meaning { background: var(--card); border-left: 4px solid #3d85d1; padding: .6rem .9rem; margin: .9rem 0;
  border-radius: 0 .4rem .4rem 0; }
.errors { border-left: 4px solid var(--error); background: var(--card); padding: .5rem .9rem; margin: .7rem 0;
  overflow-wrap: anywhere; } .errors ul { margin: .2rem 0; padding-left: 1.2rem; }
.more { margin: .5rem 0; } summary { cursor: pointer; color: var(--link); font-size: .9rem; }
.more p { max-width: 60rem; }
.again { display: flex; flex-wrap: wrap; gap: .3rem 1rem; align-items: baseline; margin: .5rem 0; }
code { font: .88rem ui-monospace, monospace; background: var(--card); border: 1px solid var(--line);
  padding: .1rem .4rem; border-radius: .3rem; overflow-wrap: anywhere; user-select: all; }
.up { color: var(--soft); font-size: .9rem; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .2rem 1rem; font-size: .9rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }

@media screen and (min-width: 70rem) {
  .layout { display: grid; grid-template-columns: 17rem minmax(0, 1fr); gap: 0 2.4rem; align-items: start; }
  aside { position: sticky; top: 0; max-height: 100vh; overflow-y: auto; margin: 1.2rem 0; padding: .4rem .3rem 1rem; }
  main { margin-top: 1.6rem; } .contents > label { display: none; }
}
@media screen and (max-width: 69.99rem) {
  .contents > label::before { content: "▸ "; } .contents input:checked + label::before { content: "▾ "; }
  .contents input:not(:checked) ~ div { display: none; } .contents > div { margin-top: .6rem; }
  .contents li a { white-space: normal; padding: .3rem 0; }
}
@media (min-width: 60rem) {
  .body.one { grid-template: "lead plots" auto "rest plots" 1fr / minmax(0, 1fr) minmax(0, 25rem); }
  .body.one .lead { grid-area: lead; } .body.one .plots { grid-area: plots; } .body.one .rest { grid-area: rest; }
}
@media (max-width: 44rem) {
  .board a { display: block; padding: .7rem 0; } .heads { display: none; } .board .badge { margin: 0 .4rem .2rem 0; }
  .board a > span { display: block; } .board .badge { display: inline-block; }
  .here::before { content: "here "; font-weight: 400; color: var(--soft); }
  .here small { display: inline; margin-left: .4rem; }
  .theirs::before { content: "paper "; }
  .numbers table, .numbers thead, .numbers tbody { display: block; }
  .numbers tr { display: grid; grid-template-columns: 2fr 2fr 3fr; border-bottom: 1px solid var(--line); }
  .numbers th, .numbers td { border: 0; text-align: left; padding: .15rem .6rem .15rem 0; overflow-wrap: anywhere; }
  .numbers th:first-child, .numbers td:first-child { grid-column: 1 / -1; }
  dl { grid-template-columns: minmax(0, 1fr); } dd { margin-bottom: .4rem; }
  .belief dl { display: block; } .belief dt, .belief dd { display: inline; } .belief dt::after { content: ": "; }
  .belief dd::after { content: "\\A"; white-space: pre; }
}
@media print {
  :root { color-scheme: light; --ink: #000; --soft: #444; --line: #bbb; --back: #fff; --card: #fff;
    --seen: #1f7a4a; --not-seen: #b3352e; --link: #000; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  body { max-width: none; font-size: 10.5pt; padding: 0; } a { text-decoration: none; }
  aside, .up { display: none; } .plots figure { max-width: 21rem; }
  .wide { overflow: visible; background: none; } th, td { white-space: normal; }
  figure, tr, .meaning, .belief, .compared, .board li, .share, .numbers { break-inside: avoid; }
  h2, h3, h4, .badge { break-after: avoid; } figure { border: 1px solid var(--line); }
  details::details-content { content-visibility: visible; display: block; block-size: auto; }
}
@supports not selector(:has(*)) { .filter { display: none; } }
"""


def filter_rules(papers: Mapping[str, Sequence[str]]) -> str:
    """Return the rules that hide what a checked radio button leaves out, on the screen only.

    papers: the CSS names of the outcomes that each paper's claims have. One rule for each choice: a browser that does
    not know `:has()` drops them all and shows everything.
    """
    rules = []
    for name in map(slug, (*OUTCOMES, ERROR)):
        chosen = f"body:has(#outcome-is-{name}:checked)"
        other = f'[data-outcome]:not([data-outcome="{name}"])'
        rules.append(f'{chosen} :is({other}, [data-outcomes]:not([data-outcomes~="{name}"])) {{ display: none; }}')
        for paper in (paper for paper, outcomes in papers.items() if name not in outcomes):
            rules.append(f"{chosen}:has(#paper-is-{paper}:checked) .nothing {{ display: block; }}")
    for paper in papers:
        rules.append(
            f'body:has(#paper-is-{paper}:checked) [data-paper]:not([data-paper="{paper}"]) {{ display: none; }}'
        )
    return "@media screen {\n" + "\n".join(rules) + "\n}\n"
