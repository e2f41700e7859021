"""The other commands, settings from environment and files, and bad input."""

import ast
import json
import math
import re
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bellhop_process import GOLDEN, MODEL, ROOT, ProgramTest, call

COMMANDS = ("run", "inspect", "tokenize", "logits", "perplexity", "profile", "bench", "opbench", "quantize", "doctor")


def read_npy(path):
    """Shape and values of a float32 .npy file."""
    data = path.read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    length = struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10:10 + length].decode())
    assert header["descr"] == "<f4" and header["fortran_order"] is False, header
    count = math.prod(header["shape"])
    return header["shape"], struct.unpack(f"<{count}f", data[10 + length:])


class UsageTest(ProgramTest):
    def test_help_and_version(self):
        overview = self.ok("--help")
        for command in COMMANDS:
            self.assertIn(f"\n  {command} ", overview)
            self.assertIn(f"Usage: bellhop {command} ", self.ok(command, "--help"))
            self.assertEqual(self.ok("help", command), self.ok(command, "-h"))
        self.assertRegex(self.ok("--version"), r"^bellhop \d+\.\d+\.\d+ \(commit ([0-9a-f]{7,40}(-dirty)?|unknown), ")

    def test_wrong_usage(self):
        self.assertIn("no command given", self.fails())
        self.assertIn("did you mean --threads?", self.fails("run", "--thraeds", "1"))
        self.assertIn("did you mean tokenize?", self.fails("tokenise"))
        self.assertIn("--threads 'x': expects", self.fails("run", "-t", "x"))
        self.assertIn("given 2 times", self.fails("run", "-n", "1", "-n", "2"))

    def test_environment_twins(self):
        arguments = ("run", "--raw", "-p", "The king said to the people", "--ignore-eos")
        twins = {"BELLHOP_PREDICT": "3", "BELLHOP_GREEDY": "1", "BELLHOP_MODEL": str(MODEL)}
        ids = self.ok_json(*arguments, env=twins)["ids"]
        self.assertEqual(ids, self.ok_json(*arguments, "-n", "3", "--greedy")["ids"])
        self.assertEqual(len(self.ok_json(*arguments, "-n", "5", env=twins)["ids"]), 5)
        self.assertIn("BELLHOP_CTX_SIZE 'big': expects", self.fails(*arguments, env={"BELLHOP_CTX_SIZE": "big"}))
        done = call(*arguments, "-n", "1", "-q", env={"BELLHOP_THREDS": "1"})
        self.assertIn(b"BELLHOP_THREDS is no setting; did you mean BELLHOP_THREADS?", done.stderr)

    def test_settings_file(self):
        path = self.file("settings.json", json.dumps({"predict": 3, "greedy": True, "ctx": 64, "window": 16}))
        result = self.ok_json("run", "--raw", "-p", "The king", "--ignore-eos", "--config", path)
        self.assertEqual((len(result["ids"]), result["context"]["size"]), (3, 64))
        self.assertIn("unknown key 'gredy'; did you mean greedy?",
                      self.fails("run", "-p", "x", "--config", self.file("bad.json", '{"gredy": true}')))

    def test_verbose_names_the_settings_and_their_source(self):
        done = call("run", "-p", "x", "-n", "1", "-v", env={"BELLHOP_THREADS": "1"})
        self.assertIn(b"bellhop: debug: setting threads = 1 (BELLHOP_THREADS)", done.stderr)
        self.assertIn(b"bellhop: debug: setting predict = 1 (argument)", done.stderr)

    def test_log_file(self):
        log = self.folder / "run.log"
        done = call("run", "-p", "x", "-n", "1", "--log-file", log)
        self.assertEqual(done.returncode, 0)
        self.assertNotIn(b"KV cache", done.stderr)
        self.assertRegex(log.read_text(), r"(?m)^\d{4}-\d\d-\d\dT[\d:.]+ info .*KV cache")

    def test_missing_model(self):
        for command in ("run", "inspect", "tokenize", "logits", "bench"):
            self.assertIn("/nonexistent/model.gguf", self.fails(command, "/nonexistent/model.gguf", stdin=b"x"))


class BadFilesTest(ProgramTest):
    FOLDER = ROOT / "tests" / "data" / "gguf"

    def files(self, verdict):
        listed = json.loads((self.FOLDER / "manifest.json").read_text())["files"]
        return [self.FOLDER / entry["file"] for entry in listed if entry["verdict"] == verdict]

    def test_inspect_refuses_each_with_one_line(self):
        rejected = self.files("reject")
        self.assertGreaterEqual(len(rejected), 60)
        with ThreadPoolExecutor(2) as pool:
            reasons = list(pool.map(lambda path: self.fails("inspect", path), rejected))
        for path, reason in zip(rejected, reasons):
            self.assertIn(path.name, reason)
            self.assertGreater(len(reason), len(str(path)) + 10)

    def test_inspect_opens_good_files_of_any_architecture(self):
        for path in self.files("accept"):
            result = self.ok_json("inspect", path)
            self.assertEqual(result["files"], [str(path)])
            self.ok("inspect", path, "--tensors")

    def test_run_and_quantize_refuse_them_too(self):
        names = ("bad_magic_case.gguf", "bad_offset_past_end.gguf", "bad_empty_file.gguf", "bad_key_length_max.gguf")
        for name in names:
            self.assertIn(name, self.fails("run", self.FOLDER / name, "-p", "x"))
            self.assertIn(name, self.fails("quantize", self.FOLDER / name, self.folder / "out.gguf", "--type", "q8_0"))
            self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_truncated_model_is_refused(self):
        path = self.file("cut.gguf", MODEL.read_bytes()[:5_000_000])
        reason = self.fails("run", path, "-p", "x")
        self.assertIn("cut.gguf", reason)


class InspectTest(ProgramTest):
    def test_tables_and_json_agree(self):
        result = self.ok_json("inspect", MODEL)
        self.assertEqual(result["architecture"], "qwen3moe")
        self.assertTrue(result["supported"])
        self.assertEqual(len(result["tensors"]), 51)
        self.assertEqual(result["file_bytes"], MODEL.stat().st_size)
        self.assertEqual(sum(t["bytes"] for t in result["tensors"]), result["tensor_bytes"])
        self.assertEqual(sum(f["bytes"] for f in result["formats"]), result["tensor_bytes"])
        tokens = result["metadata"]["tokenizer.ggml.tokens"]
        self.assertEqual((len(tokens["value"]), tokens["length"]), (8, 4096))
        self.assertEqual(len(self.ok_json("inspect", MODEL, "--max-array", "5000")
                             ["metadata"]["tokenizer.ggml.tokens"]["value"]), 4096)
        table = self.ok("inspect", MODEL, "--tensors")
        for tensor in result["tensors"]:
            self.assertRegex(table, rf"(?m)^  {re.escape(tensor['name'])} +{tensor['format']} .* {tensor['bytes']}$")


class TokenizeTest(ProgramTest):
    def test_golden_cases_and_back(self):
        cases = json.loads((GOLDEN / "tokenizer_cases.json").read_text())
        for case in cases[::25]:
            result = self.ok_json("tokenize", "-f", "-", stdin=case["text"].encode())
            self.assertEqual(result["ids"], case["ids"])
            self.assertEqual(result["count"], len(case["ids"]))
            if case["ids"]:
                back = self.ok_json("tokenize", "--decode", ",".join(map(str, case["ids"])))
                self.assertEqual(back["text"], case["text"])

    def test_options(self):
        self.assertEqual(self.ok_json("tokenize", "-p", "a<|im_end|>")["ids"][-1], 4095)
        self.assertNotIn(4095, self.ok_json("tokenize", "-p", "a<|im_end|>", "--no-special")["ids"])
        self.assertEqual(self.ok("tokenize", "-p", "\n").split(), ["198", '"\\n"'])
        self.assertEqual(self.ok_json("tokenize", "-p", r"\n", "-e")["ids"], [198])
        self.assertIn("4095", self.fails("tokenize", "--decode", "4096"))


class LogitsTest(ProgramTest):
    def test_npy_equals_the_golden_logits(self):
        golden = json.loads((GOLDEN / "short.json").read_text())
        shape, expected = read_npy(GOLDEN / "short_logits.npy")
        out = self.folder / "logits.npy"
        result = self.ok_json("logits", "-p", golden["text"], "--all", "--act", "f32", "--out", out, "--experts",
                              "--top", "20")
        got_shape, got = read_npy(out)
        self.assertEqual(got_shape, shape)
        self.assertLess(max(abs(a - b) for a, b in zip(got, expected)), 2e-3)
        self.assertEqual(result["ids"], golden["ids"])
        for position, ids in zip(result["positions"], golden["top20_ids"]):
            self.assertEqual(position["top_ids"][0], ids[0])
        for layer in result["experts"]:
            for got_ids, wanted in zip(layer["ids"], golden["experts"][layer["layer"]]):
                self.assertEqual(sorted(got_ids), sorted(wanted))

    def test_last_position_and_token_input(self):
        out = self.folder / "last.npy"
        ids = self.ok_json("tokenize", "-p", "The king")["ids"]
        self.ok("logits", "--ids", ",".join(map(str, ids)), "--out", out)
        shape, values = read_npy(out)
        self.assertEqual(shape, (1, 4096))
        result = self.ok_json("logits", "-p", "The king", "--top", "1")
        self.assertEqual(result["positions"][0]["position"], len(ids) - 1)
        self.assertEqual(result["positions"][0]["top_ids"], [max(range(4096), key=values.__getitem__)])
        self.assertIn("0 to 4095", self.fails("logits", "--ids", "4096"))


class CorpusTest(ProgramTest):
    def held_out(self, source):
        lines = (GOLDEN / "heldout-public-domain.jsonl").read_text(encoding="utf-8").splitlines()
        return [line for line in lines if json.loads(line)["s"] == source]

    def test_perplexity_equals_the_golden_one(self):
        golden = json.loads((GOLDEN / "perplexity_sources.json").read_text())["sources"]["jargon"]
        documents = [json.dumps({"text": d["t"], "source": d["s"]}) for d in map(json.loads, self.held_out("jargon")[:9])]
        documents.insert(3, json.dumps({"text": "short", "source": "tiny"}))
        path = self.file("documents.jsonl", "\n".join(documents) + "\n")
        result = self.ok_json("perplexity", "-f", path)
        self.assertEqual([s["source"] for s in result["sources"]], ["jargon"])
        source = result["sources"][0]
        self.assertEqual((source["documents"], source["windows"]), (9, source["tokens"] // 512))
        self.assertGreaterEqual(source["windows"], 2)
        self.assertEqual(source["scored_tokens"], source["windows"] * 511)
        # The first documents fill the first windows of the whole source.
        expected = sum(golden["window_nll_sums"][:source["windows"]])
        self.assertAlmostEqual(source["nll_sum"] / expected, 1, delta=1e-3)
        self.assertAlmostEqual(result["perplexity"], math.exp(result["nll_sum"] / result["scored_tokens"]), places=9)

    def test_plain_text_and_errors(self):
        text = self.file("text.txt", "The king said to the people, and they went away. " * 12)
        result = self.ok_json("perplexity", "-f", text, "--window", "32")
        self.assertEqual(result["scored_tokens"], result["windows"] * 31)
        self.assertIn("documents.jsonl:2: not a JSON object",
                      self.fails("perplexity", "-f", self.file("documents.jsonl", '{"text": "a"}\nnonsense\n')))
        self.assertIn("no source has a window of 512 tokens",
                      self.fails("perplexity", "-f", self.file("short.jsonl", '{"text": "", "source": "a"}\n')))
        self.assertIn("larger than the context", self.fails("perplexity", "-f", text, "--window", "2000"))
        self.assertIn("is not one token", self.fails("perplexity", "--separator", "two tokens", "-f", self.file(
            "one.jsonl", '{"text": "a"}\n')))

    def test_profile_counts_every_route(self):
        text = self.file("text.txt", "The king said to the people, and they went away. " * 12)
        out = self.folder / "hot.strp"
        printed = self.ok_json("profile", "-f", text, "-o", out, "--window", "64")
        counts = json.loads((self.folder / "hot.json").read_text())
        self.assertEqual(printed, counts)
        self.assertEqual([layer["layer"] for layer in counts["layers"]], [0, 1, 2, 3])
        for layer in counts["layers"]:
            self.assertEqual(sum(layer["counts"]), counts["tokens"] * 4)
        self.assertEqual(out.read_bytes()[:4], b"STRP")
        self.assertIn("most popular", self.ok("profile", "-f", text, "-o", out, "--window", "64"))
        self.assertEqual(len(self.ok_json("run", "-p", "x", "--greedy", "-n", "2", "--profile", out)["ids"]), 2)
        self.assertIn("text.txt", self.fails("run", "-p", "x", "--profile", text))


class BenchTest(ProgramTest):
    ARGUMENTS = ("bench", "--pp", "8", "--tg", "4", "--reps", "2", "-t", "1", "-d", "0,8")

    def test_json_has_the_shape_of_result_files(self):
        result = self.ok_json(*self.ARGUMENTS)
        self.assertEqual(result["name"], "bench")
        self.assertRegex(result["commit"], r"^([0-9a-f]{7,40}(-dirty)?|unknown)$")
        self.assertRegex(result["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual(result["command"], " ".join(("bellhop", *self.ARGUMENTS, "--json")))
        self.assertLessEqual({"gpu", "driver", "cpu", "cores", "isa"}, result["machine"].keys())
        self.assertGreater(result["ceilings"]["cpu_read_gbps"], 0)
        self.assertEqual([c["test"] for c in result["cases"]], ["pp8", "tg4", "pp8@d8", "tg4@d8"])
        for case in result["cases"]:
            self.assertEqual(len(case["seconds"]), 2)
            self.assertGreater(case["tokens_per_s"], 0)
            self.assertLessEqual(case["ms_per_token"], case["ms_per_token_p90"])
            generates = case["test"].startswith("tg")
            for key in ("gbps", "bound_tokens_per_s", "share_of_bound"):
                self.assertEqual(key in case, generates, key)
            if generates:
                bound = result["ceilings"]["cpu_read_gbps"] * 1e9 / case["weight_bytes_per_token"]
                self.assertAlmostEqual(case["bound_tokens_per_s"] / bound, 1)
                self.assertAlmostEqual(case["share_of_bound"], 1e3 / case["ms_per_token"] / bound)

    def test_out_is_the_same_file(self):
        out = self.folder / "bench.json"
        table = self.ok(*self.ARGUMENTS[:7], "--out", out)
        self.assertIn("read bandwidth with", table)
        result = json.loads(out.read_text())
        self.assertEqual([c["test"] for c in result["cases"]], ["pp8", "tg4"])

    def test_tables(self):
        lines = self.ok(*self.ARGUMENTS[:7]).splitlines()
        self.assertRegex(lines[2], r"^\| tiny-moe Q4_0 \| 17\.4 MB \| 27\.95 M \| CPU \w+ +\| +\d+ \| +pp8 \| +[\d.]+ ± ")
        rows = self.ok(*self.ARGUMENTS[:7], "-o", "csv").splitlines()
        self.assertEqual(len({row.count(",") for row in rows}), 1)
        self.assertEqual(len(rows), 3)

    def test_errors(self):
        self.assertIn("nothing to measure", self.fails("bench", "--pp", "0", "--tg", "0"))
        if "built without CUDA" in self.ok("doctor", "--no-measure"):
            self.assertIn("--residency 25", self.fails("bench", "--residency", "25"))


class QuantizeTest(ProgramTest):
    def test_the_result_runs(self):
        out = self.folder / "q8.gguf"
        arguments = ("quantize", MODEL, out, "--type", "q8_0")
        self.assertIn("--allow-requantize", self.fails(*arguments))
        self.assertFalse(out.exists())
        report = self.ok_json(*arguments, "--allow-requantize")
        self.assertEqual(report["out_bytes"], out.stat().st_size)
        self.assertEqual(report["converted"], 12)  # gate, up and down experts of four layers
        self.assertIn("--overwrite", self.fails(*arguments, "--allow-requantize"))
        formats = {f["format"] for f in self.ok_json("inspect", out)["formats"]}
        self.assertEqual(formats, {"Q8_0", "F32"})
        run = ("run", "-p", "The king said", "--raw", "--greedy", "-n", "4")
        self.assertEqual(self.ok_json(*run, out)["ids"], self.ok_json(*run)["ids"])
        self.assertIn("'q9_9'", self.fails("quantize", MODEL, self.folder / "x.gguf", "--type", "q9_9"))


class DoctorTest(ProgramTest):
    def test_json_and_table(self):
        result = self.ok_json("doctor", "--no-measure", MODEL)
        self.assertIsInstance(result["problems"], bool)
        groups = [check["group"] for check in result["checks"]]
        self.assertLessEqual({"CPU", "Memory", "Build"}, set(groups))
        for check in result["checks"]:
            self.assertIn(check["level"], ("ok", "note", "problem"))
            self.assertTrue(check["name"] and check["value"])
        table = self.ok("doctor", "--no-measure", MODEL)
        for check in result["checks"]:
            self.assertIn(check["name"], table)

    def test_calibration_is_stored_and_shown(self):
        env = {"XDG_CACHE_HOME": str(self.folder)}
        shown = self.ok("doctor", "--no-measure", env=env)
        self.assertIn("doctor --calibrate", shown)
        result = self.ok_json("doctor", "--calibrate", env=env)
        self.assertEqual(result["path"], str(self.folder / "bellhop" / "calibration.json"))
        self.assertGreater(result["dram_gbps"], 0)
        stored = json.loads(Path(result["path"]).read_text())
        self.assertEqual(stored["machine"], result["machine"])
        self.assertIn(result["date"], self.ok("doctor", "--no-measure", env=env))
        table = self.ok("doctor", "--calibrate", "--calibration", self.folder / "c.json")
        self.assertIn(f"stored in {self.folder / 'c.json'}", table)
        nowhere = self.folder / "none" / "c.json"
        self.assertIn("no folder", self.fails("doctor", "--calibrate", "--calibration", nowhere))
        (self.folder / "file").write_text("")
        self.assertIn("--calibration FILE", self.fails("doctor", "--calibrate", code=1,
                                                       env={"XDG_CACHE_HOME": str(self.folder / "file")}))
