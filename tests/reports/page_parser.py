"""A parser of report pages, for tests."""

from html.parser import HTMLParser

VOID = {"meta", "input", "link", "img", "br", "hr"}

PARAGRAPHS = {"p", "li", "figcaption"}


class Page(HTMLParser):
    """A parsed page: its text, its tags with attributes, and the rows of every table."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.tables, self.words, self.scripts = [], [], {}, [], []
        self.paragraphs = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        if tag not in VOID:
            self.open.append(tag)
        if tag in PARAGRAPHS:
            self.paragraphs.append("")
        if tag == "table":
            self.rows = self.tables.setdefault(attrs["id"], [])
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)
        if PARAGRAPHS & set(self.open):
            self.paragraphs[-1] += data
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data.strip("\n").replace("\xa0", " ")

    @property
    def text(self):
        return " ".join("".join(self.words).split())

    @property
    def attributes(self):
        return [pair for _, attrs in self.tags for pair in attrs.items()]

    @property
    def names(self):
        return [tag for tag, _ in self.tags]
