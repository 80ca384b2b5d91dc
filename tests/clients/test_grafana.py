"""docs/grafana-dashboard.json: as Grafana wants it, and every expression asks for what /metrics has.

There is no Grafana here: its structure is looked at by hand. Expressions go through a real parser.
"""

import json
import re
import unittest
import urllib.request

import promql_parser as promql
import redis
from prometheus_client.parser import text_string_to_metric_families

from server import ServerTest

PATH = "../../docs/grafana-dashboard.json"
COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Units of Grafana that the dashboard uses.
UNITS = {"s", "bytes", "short", "ops", "iops", "Bps", "percentunit"}
# What Grafana puts in place of its variables, more or less.
VARIABLES = {"$__rate_interval": "1m", "$instance": ".*"}
# Prometheus adds these labels to what it scrapes.
ADDED_LABELS = {"instance", "job"}


def load():
    with open(PATH, encoding="utf-8") as file:
        return json.load(file)


def charts(dashboard):
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def parse(text):
    for name, value in VARIABLES.items():
        text = text.replace(name, value)
    if "$" in text:
        raise ValueError(f"an unknown variable: {text}")
    return promql.parse(text)


def children(node):
    """Expressions that stand in `node`."""
    match node:
        case promql.AggregateExpr() | promql.ParenExpr() | promql.UnaryExpr():
            return [node.expr]
        case promql.BinaryExpr():
            return [node.lhs, node.rhs]
        case promql.Call():
            return node.args
        case promql.MatrixSelector():
            return [node.vector_selector]
        case promql.VectorSelector() | promql.NumberLiteral():
            return []
    raise ValueError(f"not looked into: {node}")


class Structure(unittest.TestCase):
    def test_it_is_a_dashboard_that_can_be_imported(self):
        dashboard = load()
        self.assertGreaterEqual(dashboard["schemaVersion"], 36)
        self.assertTrue(dashboard["title"])
        self.assertRegex(dashboard["uid"], r"^[a-zA-Z0-9_-]{1,40}$")
        self.assertEqual(dashboard["time"], {"from": "now-1h", "to": "now"})
        self.assertRegex(dashboard["refresh"], r"^\d+[smh]$")
        # The database gives numbers; an import that brings one replaces what has it.
        self.assertIsNone(dashboard.get("id"))
        self.assertNotIn("__inputs", dashboard, "nothing is asked for but the data source")

    def test_it_asks_which_data_source_and_which_servers(self):
        source, instance = load()["templating"]["list"]
        self.assertEqual((source["name"], source["type"]), ("datasource", "datasource"))
        self.assertEqual(source["query"], "prometheus")
        self.assertEqual((instance["name"], instance["type"]), ("instance", "query"))
        self.assertEqual(instance["datasource"], SOURCE)
        self.assertEqual(instance["query"]["query"], "label_values(pando_info, instance)")
        # All of several are a pattern, so that selectors must match by one.
        self.assertTrue(instance["multi"] and instance["includeAll"])
        self.assertEqual(instance["allValue"], ".*")

    def test_panels_lie_side_by_side(self):
        panels = load()["panels"]
        ids = [panel["id"] for panel in panels]
        self.assertEqual(len(set(ids)), len(ids))
        taken = {}
        for panel in panels:
            title, at = panel["title"], panel["gridPos"]
            self.assertEqual(set(at), {"x", "y", "w", "h"}, title)
            self.assertGreaterEqual(min(at["x"], at["y"]), 0, title)
            self.assertGreater(min(at["w"], at["h"]), 0, title)
            self.assertLessEqual(at["x"] + at["w"], COLUMNS, title)
            for x in range(at["x"], at["x"] + at["w"]):
                for y in range(at["y"], at["y"] + at["h"]):
                    self.assertNotIn((x, y), taken, f"{title}, {taken.get((x, y))}")
                    taken[x, y] = title
        height = 1 + max(y for _, y in taken)
        self.assertEqual(len(taken), COLUMNS * height, "a hole")

    def test_each_panel_has_all_that_it_needs(self):
        for panel in load()["panels"]:
            with self.subTest(panel["title"]):
                if panel["type"] == "row":
                    self.assertEqual(panel.get("panels", []), [])
                    self.assertFalse(panel["collapsed"])
                    continue
                self.assertEqual(panel["type"], "timeseries")
                self.assertEqual(panel["datasource"], SOURCE)
                defaults = panel["fieldConfig"]["defaults"]
                self.assertIn(defaults["unit"], UNITS)
                self.assertEqual(panel["fieldConfig"]["overrides"], [])
                references = [target["refId"] for target in panel["targets"]]
                self.assertTrue(references)
                self.assertEqual(references, sorted(set(references)))
                legends = [target["legendFormat"] for target in panel["targets"]]
                self.assertEqual(len(set(legends)), len(legends))
                for target in panel["targets"]:
                    self.assertEqual(target["datasource"], SOURCE)


class Expressions(ServerTest):
    flags = ("--metrics-listen", "127.0.0.1:0")

    def setUp(self):
        super().setUp()
        with redis.Redis(port=self.server.port) as r:
            r.set("a", "1")
            r.get("a")
            with self.assertRaises(redis.ResponseError):
                r.incrby("a", "x")
        with urllib.request.urlopen(self.server.metrics + "/metrics", timeout=20) as reply:
            families = list(text_string_to_metric_families(reply.read().decode()))
        # Of each series' name: its family's type, and the labels that it has.
        self.series = {}
        for family in families:
            for sample in family.samples:
                labels = self.series.setdefault(sample.name, (family.type, set()))[1]
                labels.update(sample.labels)

    def test_the_variable_of_servers_has_a_metric(self):
        self.assertIn("pando_info", self.series)

    def test_each_one_asks_for_what_is_there(self):
        asked = set()
        for panel in charts(load()):
            for target in panel["targets"]:
                with self.subTest(panel["title"], expr=target["expr"]):
                    root = parse(target["expr"])
                    labels = self.check(root, None, asked)
                    legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
                    self.assertLessEqual(legend, labels, "the legend names what is not there")
                    # Series that differ in a label have to say so.
                    self.assertLessEqual(labels - legend, ADDED_LABELS if legend else set())
        self.assertGreater(len(asked), 40)

    def check(self, node, function, asked):
        """Looks at `node`, which `function` is called with. Returns the labels of its result."""
        labels = set()
        if isinstance(node, promql.VectorSelector):
            return self.check_series(node, function, asked)
        inner = node.func.name if isinstance(node, promql.Call) else function
        for child in children(node):
            labels |= self.check(child, inner, asked)
        if isinstance(node, promql.AggregateExpr):
            kept = set(node.modifier.labels) if node.modifier else set()
            self.assertLessEqual(kept, labels, "grouped by a label that is not there")
            return kept
        if inner == "histogram_quantile" and isinstance(node, promql.Call):
            self.assertIn("le", labels, "quantiles need the ends of buckets")
            return labels - {"le"}
        return labels

    def check_series(self, selector, function, asked):
        self.assertIn(selector.name, self.series)
        asked.add(selector.name)
        kind, labels = self.series[selector.name]
        is_growing = kind in ("counter", "histogram")
        self.assertEqual(function == "rate", is_growing, "what grows has a rate, nothing else")
        for matcher in selector.matchers.matchers:
            self.assertIn(matcher.name, labels | ADDED_LABELS)
        servers = [m for m in selector.matchers.matchers if m.name == "instance"]
        self.assertEqual([m.op for m in servers], [promql.MatchOp.Re], "of the servers chosen")
        return labels | ADDED_LABELS

    def test_the_parser_refuses_what_is_wrong(self):
        for wrong in ("rate(pando_gets_total)", "sum by (le (pando_keys)", "pando_keys{a=~b}",
                      "nosuch(pando_keys)", "pando_keys[$range]"):
            with self.assertRaises(ValueError):
                parse(wrong)


if __name__ == "__main__":
    unittest.main()
