"""/metrics as Prometheus' own parser reads it, and the probes."""

import re
import unittest
import urllib.error
import urllib.request

import redis
from prometheus_client.parser import text_string_to_metric_families

from server import ServerTest


class Metrics(ServerTest):
    flags = ("--metrics-listen", "127.0.0.1:0")

    def get(self, path):
        with urllib.request.urlopen(self.server.metrics + path, timeout=20) as reply:
            return reply.read().decode()

    def test_all_families_are_well_formed(self):
        with redis.Redis(port=self.server.port) as r:
            r.set("a", "1")
            for _ in range(10):
                r.get("a")
            with self.assertRaises(redis.ResponseError):
                r.execute_command("NO\"SUCH")
        families = {f.name: f for f in text_string_to_metric_families(self.get("/metrics"))}
        for family in families.values():
            self.assertTrue(family.documentation, family.name)
            self.assertIn(family.type, ("counter", "gauge", "histogram"), family.name)
            if family.type == "histogram":
                self.check_histogram(family)
        gets = [s for s in families["pando_command_seconds"].samples
                if s.name.endswith("_count") and s.labels["command"] == "get"]
        self.assertEqual([s.value for s in gets], [10])
        [hits] = families["pando_keyspace_hits"].samples
        self.assertEqual(hits.value, 10)
        with open("../../docs/statistics.md", encoding="utf-8") as file:
            page = file.read()
        for name, unit in re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", page, re.M):
            exported = re.sub("_ns$", "_seconds", name)
            self.assertIn("pando_" + exported, families, unit)

    def check_histogram(self, family):
        series = {}
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k != "le"}
            kind = sample.name.rsplit("_", 1)[1]
            key = tuple(sorted(labels.items()))
            series.setdefault(key, {}).setdefault(kind, []).append(sample)
        for parts in series.values():
            ends = [float(s.labels["le"]) for s in parts["bucket"]]
            counts = [s.value for s in parts["bucket"]]
            self.assertEqual(ends, sorted(set(ends)), family.name)
            self.assertEqual(ends[-1], float("inf"))
            self.assertEqual(counts, sorted(counts), family.name)
            self.assertEqual(counts[-1], parts["count"][0].value)
            self.assertEqual(len(parts["sum"]), 1)

    def test_probes(self):
        self.assertEqual(self.get("/healthz"), "ok\n")
        with redis.Redis(port=self.server.port) as r:
            r.ping()
        self.assertEqual(self.get("/readyz"), "ready\n")
        with self.assertRaises(urllib.error.HTTPError) as failed:
            self.get("/nosuch")
        self.assertEqual(failed.exception.code, 404)
        failed.exception.close()


if __name__ == "__main__":
    unittest.main()
