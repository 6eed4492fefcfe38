"""The page's look: one style sheet for light and dark, phone and desk, screen and paper; and its drawings.

Colours are given once, as variables. Text has a contrast of 4.5:1 at least against every ground it stands
on, lines and bars of charts 3:1 (WCAG 2.2, 1.4.3 and 1.4.11); tests/reconcile/test_browser.py measures it.
"""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--ground:#f4f6f8;--card:#fff;--text:#161b22;--quiet:#566070;--edge:#dfe4ea;
--grid:#e6eaef;
--link:#1f55c9;--ok:#0a6e46;--ok-soft:#e3f5ec;--bad:#b3202a;--bad-soft:#fdebec;--warn:#855200;
--warn-soft:#fdf2dc;
--note:#334155;--sent:#3b6fd9;--received:#12897b;--shadow:0 1px 2px #1018280f,0 4px 16px #1018280a}
@media(prefers-color-scheme:dark){:root{--ground:#0d1117;--card:#161c24;--text:#e8edf3;--quiet:#a0acba;
--edge:#2b333e;
--grid:#262e38;--link:#8ab4ff;--ok:#4ed79b;--ok-soft:#10291f;--bad:#ff8d8d;--bad-soft:#351a1d;
--warn:#f2bb5c;
--warn-soft:#302411;--note:#c3cedb;--sent:#6f9dff;--received:#35b9a8;--shadow:none}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;scroll-padding-top:4.5rem;-webkit-text-size-adjust:100%}
@media(prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--ground);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif}
.wide{max-width:1200px;margin:0 auto;padding:0 20px}
h1,h2,h3,p,dl,dd,ul,figure{margin:0;padding:0}
h1{font-size:clamp(1.55rem,1.1rem + 2vw,2.3rem);line-height:1.15;letter-spacing:-.02em;
margin:.2rem 0 .5rem;text-wrap:balance}
h2{font-size:1.2rem;letter-spacing:-.01em;margin:2.4rem 0 .8rem}
h3{font-size:1rem;overflow-wrap:anywhere}
a{color:var(--link)}
:focus-visible{outline:3px solid var(--link);outline-offset:2px;border-radius:4px}
code{font:.86em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;
overflow-wrap:anywhere}
.quiet{color:var(--quiet);font-weight:400}
.skip{position:absolute;left:-999px;background:var(--card);padding:8px 14px;z-index:3}
.skip:focus{left:12px;top:10px}
header{position:sticky;top:0;z-index:2;background:var(--card);border-bottom:1px solid var(--edge)}
header .wide{display:flex;align-items:center;gap:10px 28px;min-height:54px;flex-wrap:wrap}
.brand{display:flex;align-items:center;gap:9px;font-weight:650;letter-spacing:-.01em}
.brand span{color:var(--quiet);font-weight:400}
.brand svg{width:24px;height:24px;color:var(--link)}
nav{margin-left:auto}
nav ul{display:flex;gap:2px;list-style:none}
nav a{display:block;padding:8px 10px;border-radius:8px;color:var(--text);text-decoration:none;
font-size:.92rem}
nav a:hover{background:var(--ground)}
.card,.tiles>div{background:var(--card);border:1px solid var(--edge);border-radius:14px;
box-shadow:var(--shadow)}
.card{padding:16px 18px}
.card+.card{margin-top:12px}
.card>p{margin-bottom:10px;max-width:78ch}
.card>p:last-child{margin:12px 0 0}
.verdict{display:flex;gap:22px;align-items:flex-start;border-radius:18px;padding:26px 28px;margin-top:24px;
border:1px solid;
scroll-margin-top:5rem}
.verdict>div{min-width:0}
.verdict p{max-width:80ch}
.verdict .extent{margin-top:.3rem}
.when{white-space:nowrap}
.verdict>svg{width:58px;height:58px;flex:none;margin-top:2px}
.verdict .label{font-size:.92rem}
.verdict .label b{text-transform:uppercase;letter-spacing:.06em}
.clean{background:var(--ok-soft);border-color:var(--ok)}.clean>svg,.clean .label b{color:var(--ok)}
.lost{background:var(--bad-soft);border-color:var(--bad)}.lost>svg,.lost .label b{color:var(--bad)}
.unknown{background:var(--warn-soft);border-color:var(--warn)}
.unknown>svg,.unknown .label b{color:var(--warn)}
.tiles{display:grid;grid-template-columns:repeat(6,minmax(0,1fr));gap:12px;margin-top:14px}
.tiles>div{padding:13px 16px}
.tiles dt{color:var(--quiet);font-size:.88rem}
.tiles dd{font-size:1.5rem;font-weight:650;letter-spacing:-.02em;font-variant-numeric:tabular-nums;
line-height:1.3;overflow-wrap:anywhere}
.tiles .bad{border-color:var(--bad)}.tiles .bad dd{color:var(--bad)}
.tiles .warn{border-color:var(--warn)}.tiles .warn dd{color:var(--warn)}
.scroll{overflow-x:auto;margin:0 -18px;padding:0 18px}
table{border-collapse:collapse;width:100%;font-size:.92rem;position:relative}
caption{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
th,td{text-align:left;padding:9px 8px;border-bottom:1px solid var(--edge);vertical-align:top;
font-weight:400}
th:first-child,td:first-child{padding-left:0}th:last-child,td:last-child{padding-right:0}
tbody th{font-weight:600;overflow-wrap:anywhere}
thead th{color:var(--quiet);font-size:.84rem;vertical-align:bottom}
tbody tr:last-child>*{border-bottom:0}
tbody tr:hover{background:color-mix(in srgb,var(--ground) 60%,transparent)}
.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
thead .num{white-space:normal}
.num+:not(.num){padding-left:22px}
td.zero{color:var(--quiet)}
td.bad{color:var(--bad);font-weight:650}td.warn{color:var(--warn);font-weight:650}
td.note{color:var(--note);font-weight:650}
details>summary{cursor:pointer;padding:6px 0;color:var(--link);font-size:.92rem;width:fit-content}
.card>.scroll+details{margin-top:8px}
.finding>summary{color:var(--text);width:auto;padding:2px 0}
.finding>summary h3{display:inline;font-size:1.05rem}
.finding[open]>summary{margin-bottom:6px}
.finding{border-left:5px solid var(--edge)}
.finding.bad{border-left-color:var(--bad)}.finding.bad h3{color:var(--bad)}
.finding.warn{border-left-color:var(--warn)}.finding.warn h3{color:var(--warn)}
.lines{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:12px}
.lines .card+.card{margin:0}
figcaption{display:flex;flex-wrap:wrap;gap:2px 20px;justify-content:space-between;margin-bottom:8px}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;list-style:none;color:var(--quiet);font-size:.85rem}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px}
.legend .thick{height:6px;width:18px;background:var(--sent);vertical-align:2px}
.legend .thin{height:2px;width:18px;background:var(--sent);vertical-align:4px}
.legend .dot{border-radius:50%;background:var(--sent)}
i.sent{background:var(--sent)}i.received{background:var(--received)}
.plot{display:flex}
.plot .bars,.span svg{width:100%;min-width:0;display:block}
.axis{flex:none}
svg text{font-size:12px;fill:var(--quiet);font-variant-numeric:tabular-nums}
.grid{stroke:var(--grid)}
rect.sent{fill:var(--sent)}rect.received{fill:var(--received)}.area{fill:transparent}
g:hover>.area{fill:var(--grid);opacity:.5}
.span{display:grid;grid-template-columns:minmax(0,270px) minmax(0,1fr) 190px;gap:0 18px;align-items:center}
.span p{line-height:1.25;font-size:.9rem;overflow-wrap:anywhere}
.span p span{color:var(--quiet)}
.span p.figures{font-variant-numeric:tabular-nums;text-align:right}
.thick{stroke:var(--sent);stroke-width:7;stroke-linecap:round}.thin{stroke:var(--sent);stroke-width:2}
circle.dot{fill:var(--sent);stroke:var(--card);stroke-width:2}
footer{margin-top:40px;border-top:1px solid var(--edge);color:var(--quiet);font-size:.88rem}
footer .wide{padding-top:18px;padding-bottom:30px}
@media(max-width:1000px){.tiles{grid-template-columns:repeat(3,minmax(0,1fr))}}
@media(max-width:460px){.tiles{grid-template-columns:repeat(2,minmax(0,1fr))}}
@media(max-width:760px){
.wide{padding:0 14px}
header{position:static}
header .wide{min-height:0;padding-top:10px;padding-bottom:4px;display:block}
nav{margin:2px 0 0 -10px}
nav ul{flex-wrap:wrap}nav a{padding:6px 10px}
.verdict{padding:20px 18px;gap:14px;margin-top:14px}
.verdict>svg{width:40px;height:40px}
.tiles{gap:8px}.tiles>div{padding:9px 11px;border-radius:11px}.tiles dd{font-size:1.18rem}
.card{padding:14px}.scroll{margin:0 -14px;padding:0 14px}
.minor{display:none}
.span{grid-template-columns:1fr auto;gap:2px 12px;padding:6px 0}.span svg{grid-column:1/-1;grid-row:2}
.marks{padding:0}.marks p{display:none}
table.cards,.cards tbody{display:block}
.cards thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.cards tr{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));gap:8px 10px;padding:12px 0;
border-bottom:1px solid var(--edge)}
.cards tr:last-child{border:0}
.cards th,.cards td{padding:0;border:0;text-align:left;grid-column:1/-1;white-space:normal;
overflow-wrap:anywhere}
.cards .num,.cards .short{grid-column:auto}.cards .none{display:none}
.cards td::before,.cards tbody th:not(:first-child)::before{content:attr(data-label);display:block;
color:var(--quiet);
font-size:.8rem;font-weight:400;line-height:1.3}}
@media print{header{position:static}nav,.skip{display:none}body{background:#fff}
.card,.verdict,.tiles>div{box-shadow:none;break-inside:avoid}}
"""

LOGO: Final = (
    '<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" '
    'aria-hidden="true"><path d="M2 17h20M5 17V9m14 8V9M2 12c2.2 0 3-1.6 3-3.2 1.6 4.9 12.4 4.9 14 0 '
    '0 1.6.8 3.2 3 3.2"/></svg>'
)

_ICON: Final = (
    '<svg viewBox="0 0 48 48" fill="none" stroke="currentColor" stroke-width="4" stroke-linecap="round" '
    'stroke-linejoin="round" aria-hidden="true">{}</svg>'
)
#: A drawing for each verdict, so that it is not told by colour alone.
ICONS: Final = {
    "clean": _ICON.format('<circle cx="24" cy="24" r="20"/><path d="m15 25 6 6 12-13"/>'),
    "lost": _ICON.format(
        '<path d="M15.7 4h16.6L44 15.7v16.6L32.3 44H15.7L4 32.3V15.7z"/><path d="m17 17 14 14m0-14L17 31"/>'
    ),
    "unknown": _ICON.format(
        '<circle cx="24" cy="24" r="20"/><path d="M18.5 19a5.5 5.5 0 1 1 8 5c-1.7.9-2.5 2-2.5 4m0 6.500v.1"/>'
    ),
}
