"""The dashboard in a real browser: what it shows, that it moves, and what it asks for.

Needs a Chromium; SCREENSHOTS=DIRECTORY keeps what the pages look like.
"""

import os
import time
import unittest

import redis

import browser
from server import ServerTest

CHARTS = 16
# Text of the value beside the name of a series.
CURRENT = """(() => {
  const chart = [...document.querySelectorAll(".chart")].find(
    (of) => of.querySelector("h3").textContent === TITLE);
  const item = [...chart.querySelectorAll("li")].find((of) => of.textContent.startsWith(NAME));
  return item.querySelector("b").textContent;
})()"""


def current(title, name):
    return CURRENT.replace("TITLE", repr(title)).replace("NAME", repr(name))


@unittest.skipUnless(browser.find(), "no browser is installed (Debian: chromium)")
class Dashboard(ServerTest):
    flags = ("--metrics-listen", "127.0.0.1:0")

    def setUp(self):
        super().setUp()
        self.redis = redis.Redis(port=self.server.port)
        self.redis.ping()
        self.browser = browser.Browser(browser.find())
        self.browser.size(1280, 900)

    def tearDown(self):
        self.browser.close()
        self.redis.close()
        super().tearDown()

    def open(self):
        self.browser.open(self.server.metrics + "/")
        self.browser.wait_for("document.getElementById('state')?.textContent === 'serving'")

    def work(self):
        with self.redis.pipeline(transaction=False) as pipe:
            for i in range(2000):
                pipe.set(f"key:{i}", "x" * 100)
                pipe.get(f"key:{i}")
            pipe.execute()

    def work_until(self, expression):
        deadline = time.monotonic() + browser.PATIENCE
        while not self.browser.evaluate(expression):
            self.assertLess(time.monotonic(), deadline, expression)
            self.work()
            time.sleep(0.1)

    def keep(self, name):
        directory = os.environ.get("SCREENSHOTS")
        if directory:
            self.browser.screenshot(f"{directory}/{name}.png")

    def assert_fits(self):
        self.assertTrue(self.browser.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"))

    def test_figures_are_live_and_the_page_asks_for_nothing_else(self):
        self.open()
        evaluate = self.browser.evaluate
        self.assertEqual(evaluate("document.querySelectorAll('.chart svg').length"), CHARTS)
        self.work_until("[...document.querySelectorAll('#commands tbody th')].some("
                        "(of) => of.textContent === 'get')")
        self.work_until(f"parseFloat({current('Commands', 'all')}) > 0")
        self.assertEqual(evaluate(current("Hits", "keys found")), "100 %")
        self.work_until(f"/ (ns|\u00b5s|ms|s)$/.test({current('Time of commands', 'p99')})")
        # A curve of more than one moment.
        self.work_until("(document.querySelector('.chart path').getAttribute('d')"
                        ".match(/L/g) ?? []).length > 2")
        rows = evaluate("[...document.querySelectorAll('#memory tbody th')].map("
                        "(of) => of.textContent)")
        for name in ("frames", "page table", "log buffers", "images", "tables",
                     "connections", "statistics", "in use", "resident"):
            self.assertIn(name, rows)
        tiles = evaluate("document.getElementById('tiles').textContent")
        self.assertRegex(tiles, r"keys2k")
        self.assert_fits()
        self.keep("wide")
        self.assertEqual(self.browser.troubles, [])
        asked = {url for url in self.browser.requests if not url.startswith(("data:", "about:"))}
        self.assertEqual(asked, {self.server.metrics + "/", self.server.metrics + "/stats.json"})

    def test_a_reset_of_statistics_shows_no_negative_figures(self):
        self.open()
        self.work_until(f"parseFloat({current('Commands', 'all')}) > 0")
        self.redis.config_resetstat()
        self.work()
        moments = self.browser.evaluate("moments.length")
        self.browser.wait_for(f"moments.length > {moments + 1}")
        shown = self.browser.evaluate("document.body.innerText")
        self.assertNotRegex(shown, r"(?m)-\d|NaN|undefined|Infinity")
        self.assertEqual(self.browser.troubles, [])

    def test_phones_themes_and_keys(self):
        self.browser.size(360, 740, "dark")
        self.open()
        evaluate = self.browser.evaluate
        theme = "document.documentElement.dataset.theme"
        self.assertEqual(evaluate(theme), "dark")
        dark = evaluate("getComputedStyle(document.body).backgroundColor")
        self.work_until("document.querySelectorAll('#commands tbody tr').length > 1")
        self.assert_fits()
        self.keep("phone-dark")
        evaluate("document.getElementById('theme').click()")
        self.assertEqual(evaluate(theme), "light")
        self.assertNotEqual(evaluate("getComputedStyle(document.body).backgroundColor"), dark)
        self.open()
        self.assertEqual(evaluate(theme), "light", "a choice stays")
        # The keyboard reaches a chart, and moves along it.
        self.browser.wait_for("(document.querySelector('.chart path').getAttribute('d')"
                              ".match(/L/g) ?? []).length > 0")
        evaluate("document.querySelector('.chart svg').focus()")
        self.browser.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft")
        self.assertFalse(evaluate("document.getElementById('tip').hidden"))
        self.assertRegex(evaluate("document.getElementById('tip').textContent"), r"\d\d.*all")
        # Each picture says in words what it shows; nothing to press is without a name.
        labels = evaluate("[...document.querySelectorAll('svg')].map("
                          "(of) => of.getAttribute('aria-label'))")
        self.assertEqual(len(labels), CHARTS)
        for label in labels:
            self.assertRegex(label, r"^[\w, ]+: \w+.* \S+")
        tree = self.browser.call("Accessibility.getFullAXTree")["nodes"]
        for node in tree:
            role = node.get("role", {}).get("value")
            if role in ("button", "combobox", "image", "meter") and not node["ignored"]:
                self.assertTrue(node.get("name", {}).get("value"), node)

    def test_a_server_that_goes_away_and_comes_back(self):
        self.open()
        address = self.server.metrics
        self.server.kill()
        self.browser.wait_for("document.getElementById('state').textContent === 'no answer'")
        self.assertIn("trying again", self.browser.evaluate(
            "document.getElementById('trouble').textContent"))
        self.keep("gone")
        flags = self.server.flags
        self.server.flags = [address.removeprefix("http://") if flag == "127.0.0.1:0" else flag
                             for flag in flags]
        self.server.start()
        self.browser.wait_for("document.getElementById('state').textContent === 'serving'")
        self.assertTrue(self.browser.evaluate("document.getElementById('trouble').hidden"))


if __name__ == "__main__":
    unittest.main()
