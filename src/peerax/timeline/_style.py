"""How a picture looks, in light and in dark.

Colours are written out, and not variables of CSS, since not every viewer of SVG knows these.
"""

# The look of a box, what it means, and the kind that must be there for it to be shown ("" for always).
LEGEND = (
    ("k-compute", "computes", ""),
    ("k-send", "psend", "send"),
    ("k-recv", "precv", "recv"),
    ("k-exchange", "exchange", "exchange"),
    ("k-collective", "collective", "collective"),
    ("k-any w", "pale: waits for another rank", ""),
    ("k-stuck", "stuck", "stuck"),
)

STYLE = """<style>
.pxt{font:10.5px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}
.pxt .bg{fill:#fff}
.pxt .h{font-size:14px;font-weight:600;fill:#1b2530}
.pxt .l{fill:#3a4754}
.pxt .n{fill:#66727e;font-style:italic}
.pxt .s{fill:#b3261e;font-weight:600}
.pxt .t{fill:#fff}
.pxt .tw{fill:#1b2530}
.pxt .th{fill:#1b2530;stroke:#fff;stroke-width:4;paint-order:stroke}
.pxt .g{stroke:#d9dfe5;stroke-width:1;fill:none}
.pxt .e{stroke:#b3261e;stroke-width:1;stroke-dasharray:4 3;fill:none}
.pxt .a{stroke:#1b2530;stroke-width:1;fill:none}
.pxt .ah{fill:#1b2530}
.pxt .k-compute{fill:#4d6f94}
.pxt .k-send{fill:#c96a12}
.pxt .k-recv{fill:#14857f}
.pxt .k-exchange{fill:#8a55ad}
.pxt .k-collective{fill:#55892f}
.pxt .k-any{fill:#66727e}
.pxt .w{fill-opacity:.28}
.pxt .c0{fill:#f1f4f7}
.pxt .c{fill:#1f5f9e}
.pxt .ct{fill:#fff}
.pxt .k-more{fill:url(#pxt-more)}
.pxt .k-stuck{fill:url(#pxt-stuck);stroke:#b3261e;stroke-width:1}
.pxt .m{stroke:#9aa5b0}
.pxt .ms{stroke:#e58a83}
@media (prefers-color-scheme:dark){
.pxt .bg{fill:#14191f}
.pxt .h{fill:#eef2f6}
.pxt .l{fill:#c3ccd5}
.pxt .n{fill:#93a0ad}
.pxt .s{fill:#ff8a80}
.pxt .tw{fill:#eef2f6}
.pxt .th{fill:#eef2f6;stroke:#14191f}
.pxt .g{stroke:#2c353f}
.pxt .e{stroke:#ff8a80}
.pxt .a{stroke:#e3e9ef}
.pxt .ah{fill:#e3e9ef}
.pxt .w{fill-opacity:.38}
.pxt .c0{fill:#1b222a}
.pxt .c{fill:#5aa5e8}
.pxt .ct{fill:#10151a}
.pxt .k-stuck{stroke:#ff8a80}
.pxt .ms{stroke:#a3453e}
}
</style>"""

DEFS = """<defs>
<marker id="pxt-head" viewBox="0 0 6 6" refX="5.5" refY="3" markerWidth="6" markerHeight="6" orient="auto">\
<path class="ah" d="M0 0.5L6 3L0 5.5z"/></marker>
<pattern id="pxt-more" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">\
<path class="m" d="M0 0V6" stroke-width="2"/></pattern>
<pattern id="pxt-stuck" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">\
<path class="ms" d="M0 0V6" stroke-width="2.4"/></pattern>
</defs>"""
