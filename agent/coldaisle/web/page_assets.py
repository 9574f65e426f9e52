"""Style and script of the page, inline: it must work in a machine room without internet and behind any proxy path."""

STYLE = """
:root{color-scheme:light dark;--bg:#f5f6f8;--card:#fff;--ink:#1b2027;--soft:#5a6472;--line:#dfe3e8;--bar:#3b7dd8;
--track:#e4e8ee;--ok:#1a7f43;--warn:#8f5700;--bad:#c02a26;--okbg:#e3f4e9;--warnbg:#fdf0d5;--badbg:#fce4e3;--offbg:#eceff3;
--link:#0b5cad}
@media(prefers-color-scheme:dark){:root{--bg:#12161c;--card:#1a2029;--ink:#e4e9f0;--soft:#9aa6b5;--line:#2c3542;
--bar:#5b9bf0;--track:#2a3340;--ok:#6fd394;--warn:#f0b95a;--bad:#ff8a84;--okbg:#16301f;--warnbg:#382a10;--badbg:#3d1b1b;
--offbg:#252d38;--link:#7db5ff}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1560px;padding:1.25rem 1.5rem 2rem;background:var(--bg);color:var(--ink);
font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif}
a{color:var(--link)}
header{display:flex;flex-wrap:wrap;align-items:baseline;gap:.25rem 1rem;margin-bottom:.9rem}
h1{font-size:1.55rem;line-height:1.2;margin:0}
h2{font-size:1rem;margin:0 0 .6rem}
header p,.soft,small{color:var(--soft)}
header p{margin:0}
.banner{background:var(--warnbg);color:var(--warn);border:1px solid currentColor;border-radius:8px;padding:.55rem .9rem;
margin:0 0 .9rem;font-weight:600}
.state{display:flex;flex-wrap:wrap;align-items:center;gap:.4rem .8rem;background:var(--card);
border:1px solid var(--line);border-left:6px solid var(--soft);border-radius:8px;padding:.75rem 1rem;margin:0 0 .9rem}
.state.ok{border-left-color:var(--ok)}.state.warn{border-left-color:var(--warn)}.state.bad{border-left-color:var(--bad)}
.state p{margin:0;flex:1 1 20rem}
dl{display:flex;flex-wrap:wrap;gap:.5rem 2rem;margin:0 0 .9rem}
dl div{min-width:5rem}dt{color:var(--soft);font-size:.8rem}dd{margin:0;font-variant-numeric:tabular-nums}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.9rem 1rem;margin-bottom:.9rem}
.scroll{overflow-x:auto}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,34rem),1fr));gap:0 .9rem;align-items:start}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{text-align:left;font-size:.8rem;font-weight:600;color:var(--soft);white-space:nowrap;vertical-align:bottom}
th,td{padding:.38rem .65rem;border-bottom:1px solid var(--line)}
td{vertical-align:middle}
th:first-child,td:first-child{padding-left:0}th:last-child,td:last-child{padding-right:0}
tbody tr:last-child>*{border-bottom:0}
tbody th{color:var(--ink);font-size:inherit;vertical-align:middle}
.n{text-align:right;white-space:nowrap}
td.wide{min-width:12rem}
.tag{display:inline-block;border-radius:99px;padding:.08rem .6rem;font-size:.82rem;font-weight:600;white-space:nowrap;
background:var(--offbg);color:var(--soft)}
.tag.ok{background:var(--okbg);color:var(--ok)}.tag.warn{background:var(--warnbg);color:var(--warn)}
.tag.bad{background:var(--badbg);color:var(--bad)}
.meter{display:flex;align-items:center;gap:.5rem;justify-content:flex-end;white-space:nowrap}
.bar{width:64px;height:7px;border-radius:4px;background:var(--track);overflow:hidden;flex:none}
.bar i{display:block;height:100%;background:var(--bar)}
.bar.warn i{background:var(--warn)}.bar.bad i{background:var(--bad)}
.absent{color:var(--soft)}
ul.fine{list-style:none;display:flex;flex-wrap:wrap;gap:.35rem .5rem;margin:.7rem 0 0;padding:0}
ul.fine li{border:1px solid var(--line);border-radius:6px;padding:.1rem .5rem;font-size:.85rem}
ul.fine li::before{content:"\\2713";color:var(--ok);margin-right:.35rem}
code{white-space:nowrap;font-family:ui-monospace,"SF Mono",Consolas,"Liberation Mono",monospace;font-size:.92em}
footer{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;color:var(--soft)}
@media print{body{background:#fff}section,.state{break-inside:avoid}}
"""

SCRIPT = """
const every=Number(document.body.dataset.refresh);
if(every)setInterval(async()=>{
  if(document.hidden||!getSelection().isCollapsed)return;
  try{
    const answer=await fetch(location.href,{cache:"no-store"});
    if(!answer.ok)throw new Error(answer.status);
    const fresh=new DOMParser().parseFromString(await answer.text(),"text/html");
    document.querySelector("main").replaceWith(fresh.querySelector("main"));
    document.title=fresh.title;
  }catch(error){document.getElementById("stale").hidden=false}
},every*1000);
"""
