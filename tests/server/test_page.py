"""The page at / in a real browser, against the real server."""

import json
import re
import unittest
import urllib.request

import browser
from serve_process import MODEL_ID, Server, ServerTest

LONG = "Tell me a long story about the sea."


class PageTest(ServerTest):
    """Every test also fails on console errors, exceptions and requests to other hosts."""

    scheme = "light"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.chromium = cls.enterClassContext(browser.chromium())

    def setUp(self):
        self.problems, self.hosts = [], set()
        self.expected_problem = None  # a pattern of console errors that the test provokes
        self.page = self.open_page()

    def open_page(self, server=None, **options):
        context = self.chromium.new_context(viewport=browser.SIZE, color_scheme=self.scheme, **options)
        self.addCleanup(context.close)
        page = context.new_page()
        page.set_default_timeout(20000)
        page.on("console", lambda message: message.type in ("error", "warning") and self.problems.append(message.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.hosts.add(re.match(r"(?:data:|\w+://[^/]+)", request.url).group()))
        page.goto((server or self.server).url + "/")
        return page

    def tearDown(self):
        problems = [text for text in self.problems if not (self.expected_problem and re.search(self.expected_problem,
                                                                                                 text))]
        self.assertEqual(problems, [])
        if self.expected_problem:
            self.assertNotEqual(self.problems, [], "the test provoked no error")

    def settings(self, page=None, **values):
        page = page or self.page
        page.get_by_role("button", name="Settings", exact=True).click()
        for label, value in values.items():
            page.get_by_label(label.replace("_", " "), exact=True).fill(str(value))
        page.get_by_role("button", name="Close settings").click()

    def send(self, text, page=None):
        (page or self.page).get_by_label("Message", exact=True).fill(text)
        (page or self.page).keyboard.press("Enter")

    def answers(self):
        return self.page.locator(".message.assistant")

    def wait_until(self, expression, page=None):
        """Polls from outside: the page's policy forbids the evaluation that wait_for_function needs."""
        for _ in range(2000):
            if (page or self.page).evaluate(expression):
                return
            (page or self.page).wait_for_timeout(10)
        self.fail(f"never true: {expression}")

    def on_slow_server(self):
        """Moves to a server that takes a while for an answer, which is as long as it may be."""
        slow = Server("--isa", "reference", "--threads", "1")
        self.addCleanup(slow.stop)
        self.page = self.open_page(slow)
        self.page.route("**/v1/chat/completions", lambda route: route.continue_(
            post_data=json.dumps({**route.request.post_data_json, "ignore_eos": True})))
        return slow

    def wait_for_end(self):
        self.page.locator("#send").wait_for()
        self.assertEqual(self.page.locator(".streaming").count(), 0)

    def test_only_this_server_is_asked(self):
        self.page.locator("#status-dot.ok").wait_for()
        self.page.get_by_role("tab", name="Experts").click()
        self.page.locator("#busiest li").first.wait_for()
        self.assertEqual(self.hosts - {"data:"}, {self.server.url})

    def test_status_shows_the_model(self):
        self.page.locator("#status-dot.ok").wait_for()
        self.assertEqual(self.page.locator("#model-name").inner_text(), MODEL_ID)
        self.assertIn("1,024 tokens", self.page.locator("#model-more").inner_text())

    def test_answer_equals_the_api(self):
        self.settings(Temperature=0, Max_tokens=24)
        self.send("Tell me a story.")
        self.wait_for_end()
        body = {"messages": [{"role": "user", "content": "Tell me a story."}], "temperature": 0, "max_tokens": 24}
        call = urllib.request.Request(self.server.url + "/v1/chat/completions", json.dumps(body).encode(),
                                      {"Content-Type": "application/json"})
        expected = json.loads(urllib.request.urlopen(call, timeout=60).read())["choices"][0]["message"]["content"]
        shown = self.answers().locator(".body").inner_text()
        self.assertEqual(re.sub(r"\s+", "", shown), re.sub(r"[\s]+", "", expected))
        figures = self.answers().locator(".foot").inner_text()
        self.assertIn("24 tokens", figures)
        self.assertIn("tokens/s", figures)
        self.assertIn("cut off at the limit", figures)

    def test_text_appears_while_it_is_generated_and_stop_ends_it(self):
        slow = self.on_slow_server()
        self.settings(Max_tokens=900, Seed=3)
        self.send(LONG)
        body = self.answers().locator(".body")
        self.wait_until("document.querySelector('.streaming .body')?.textContent.length > 20")
        self.assertTrue(self.page.locator("#stop").is_visible())
        first = body.inner_text()
        self.wait_until(f"document.querySelector('.streaming .body').textContent.length > {len(first)}")
        self.page.get_by_role("button", name="Stop").click()
        self.wait_for_end()
        self.assertIn("stopped", self.answers().locator(".foot").inner_text())
        slow.wait_until_idle()
        self.assertLess(slow.get("/experts")["decode_tokens"], 890)

    def test_regenerate_replaces_the_last_answer(self):
        self.settings(Max_tokens=12, Temperature=0)
        self.send("Who are you?")
        self.wait_for_end()
        first = self.answers().locator(".body").inner_text()
        self.page.get_by_role("button", name="Regenerate").click()
        self.wait_for_end()
        self.assertEqual(self.answers().count(), 1)
        self.assertEqual(self.answers().locator(".body").inner_text(), first)

    def test_new_chat_forgets(self):
        self.settings(Max_tokens=8)
        self.send("One.")
        self.wait_for_end()
        self.page.get_by_role("button", name="New chat").click()
        self.assertEqual(self.page.locator(".message").count(), 0)
        self.assertTrue(self.page.locator("#welcome").is_visible())
        with self.page.expect_request("**/v1/chat/completions") as call:
            self.send("Two.")
        self.assertEqual(call.value.post_data_json["messages"], [{"role": "user", "content": "Two."}])
        self.wait_for_end()

    def test_settings_are_sent_and_kept(self):
        self.settings(System_prompt="Be brief.", Temperature=0.5, Top_p=0.9, Max_tokens=4, Seed=7)
        self.page.reload()
        with self.page.expect_request("**/v1/chat/completions") as call:
            self.send("Hello")
        sent = call.value.post_data_json
        self.assertEqual(sent["messages"][0], {"role": "system", "content": "Be brief."})
        self.assertEqual([sent[k] for k in ("temperature", "top_p", "max_tokens", "seed")], [0.5, 0.9, 4, 7])
        self.wait_for_end()

    def test_server_errors_are_shown_in_its_words(self):
        self.expected_problem = "400"
        self.send("word " * 3000)
        failure = self.page.locator(".failure")
        failure.wait_for()
        self.assertIn("1024", failure.inner_text())
        self.wait_for_end()

    def test_keyboard_alone(self):
        self.on_slow_server()
        page = self.page
        page.locator("#status-dot.ok").wait_for()
        self.assertEqual(page.evaluate("document.activeElement.id"), "prompt")
        self.settings(Max_tokens=700)
        page.locator("#prompt").focus()
        page.keyboard.type("First line")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("second line")
        page.keyboard.press("Enter")
        self.wait_until("document.querySelector('.streaming .body')?.textContent.length > 5")
        page.keyboard.press("Escape")
        self.wait_for_end()
        self.assertEqual(page.locator(".bubble").inner_text(), "First line\nsecond line")
        page.keyboard.press("Tab")
        self.assertEqual(page.evaluate("document.activeElement.id"), "open-settings")
        page.keyboard.press("Enter")
        self.assertEqual(page.evaluate("document.activeElement.id"), "system")
        page.keyboard.press("Escape")
        self.assertEqual(page.evaluate("document.activeElement.id"), "open-settings")
        page.locator("#tab-chat").focus()
        page.keyboard.press("ArrowRight")
        self.assertEqual(page.evaluate("document.activeElement.id"), "tab-experts")
        self.assertTrue(page.locator("#panel-experts").is_visible())
        page.locator("#busiest li").first.wait_for()
        for _ in range(3):  # theme, panel's first stop
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == "map":
                break
        self.assertEqual(page.evaluate("document.activeElement.id"), "map")
        for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
            page.keyboard.press(key)
        self.assertRegex(page.locator("#map-detail").inner_text(), r"^Layer 1 · expert 2 · Host memory · ")
        page.keyboard.press("End")
        self.assertIn("expert 31", page.locator("#tip").inner_text())

    def test_map_has_colours_and_hover_shows_figures(self):
        # A page's own answer may be short; this gives every expert a count of its own.
        body = {"prompt": "The captain looked at the sea", "max_tokens": 400, "temperature": 0, "ignore_eos": True}
        call = urllib.request.Request(self.server.url + "/v1/completions", json.dumps(body).encode(),
                                      {"Content-Type": "application/json"})
        with urllib.request.urlopen(call, timeout=120):
            pass
        self.settings(Max_tokens=40)
        self.send("Tell me a story.")
        self.wait_for_end()
        page = self.page
        page.get_by_role("tab", name="Experts").click()
        page.locator("#busiest li b").first.wait_for()
        colours = page.evaluate("""() => {
          const canvas = document.getElementById('canvas'), seen = new Set();
          const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
          for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] === 255) seen.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
          return seen.size; }""")
        self.assertGreater(colours, 20)  # experts of different heat
        cell = page.evaluate("map.cell")
        row = page.evaluate("map.row")
        page.locator("#map").hover(position={"x": 58 + 5.5 * cell, "y": 2.5 * row})
        tip = page.locator("#tip").inner_text().split("\n")
        self.assertEqual(tip[:2], ["Layer 2 · expert 5", "Host memory"])
        routes = self.server.get("/experts")["routes"][2][5]
        self.assertEqual(tip[2], f"{routes:,} routes since start")
        self.assertRegex(tip[3], r"^\d+\.\d\d % of (all|recent) routes$")

    def test_experts_are_polled_only_while_shown(self):
        polls = []
        self.page.on("request", lambda request: request.url.endswith("/experts") and polls.append(request.url))
        self.page.wait_for_timeout(2500)
        self.assertEqual(polls, [])
        self.page.get_by_role("tab", name="Experts").click()
        self.page.wait_for_timeout(3500)
        self.assertGreaterEqual(len(polls), 3)
        self.page.get_by_role("tab", name="Chat").click()
        count = len(polls)
        self.page.wait_for_timeout(2500)
        self.assertEqual(len(polls), count)

    def test_dense_model_has_an_empty_state(self):
        dense = {**self.server.get("/experts"), "layers": 0, "experts": 0, "experts_used": 0, "moe_layers": [],
                 "tier": [], "routes": [], "hit_rate": None}
        self.page.route("**/experts", lambda route: route.fulfill(json=dense))
        self.page.get_by_role("tab", name="Experts").click()
        self.page.get_by_role("heading", name="This model has no experts").wait_for()
        self.assertFalse(self.page.locator("#map").is_visible())
        self.assertTrue(self.page.locator("#tile-speed").is_visible())

    def test_large_model_fits_by_scrolling(self):
        rows, experts = 61, 384
        large = {**self.server.get("/experts"), "layers": rows, "experts": experts, "moe_layers": list(range(3, 64)),
                 "tier": [[e % 3 for e in range(experts)]] * rows, "routes": [list(range(experts))] * rows}
        self.page.route("**/experts", lambda route: route.fulfill(json=large))
        self.page.get_by_role("tab", name="Experts").click()
        self.page.locator("#busiest li b").first.wait_for()
        self.page.locator("#map").focus()
        for key in ("End", "PageDown"):
            self.page.keyboard.press(key)
        self.assertIn("Layer 63 · expert 383 · Disk",
                      self.page.locator("#map-detail").inner_text())
        self.assertLessEqual(self.page.evaluate("document.documentElement.scrollWidth"), browser.SIZE["width"])

    def fake_answer(self, *deltas):
        chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.page.route("**/v1/chat/completions",
                        lambda route: route.fulfill(body=body, content_type="text/event-stream"))
        self.send("Anything")
        self.wait_for_end()

    def test_model_text_is_never_markup(self):
        attack = "<img src=x onerror=\"window.hit = 1\"><script>window.hit = 1</script> **<b>bold</b>**"
        self.fake_answer({"content": attack})
        body = self.answers().locator(".body")
        self.assertIn("<img src=x onerror=", body.inner_text())
        self.assertEqual(body.locator("strong").inner_text(), "<b>bold</b>")
        self.assertEqual(body.locator("img, script, b").count(), 0)
        self.assertIsNone(self.page.evaluate("window.hit ?? null"))

    def test_markdown_and_reasoning(self):
        self.fake_answer({"reasoning_content": "Hmm, <i>let me see</i>."},
                         {"content": "# Head\n\nUse `x = 1` and **this**:\n\n- one\n- two\n\n3. three\n\n```py\nif a < b:\n"},
                         {"content": "    pass\n```\nend"})
        body = self.answers().locator(".body")
        self.assertEqual(body.locator("h4").inner_text(), "Head")
        self.assertEqual(body.locator("p code").inner_text(), "x = 1")
        self.assertEqual(body.locator("ul li").all_inner_texts(), ["one", "two"])
        self.assertEqual(body.locator("ol").get_attribute("start"), "3")
        self.assertEqual(body.locator("pre").inner_text(), "if a < b:\n    pass")
        details = self.answers().locator("details")
        self.assertFalse(details.locator("div").is_visible())
        details.locator("summary").click()
        self.assertEqual(details.locator("div").inner_text(), "Hmm, <i>let me see</i>.")

    def test_loading_progress(self):
        self.expected_problem = "503"
        body = {"status": "loading", "progress": 0.42, "error": {"code": 503, "message": "loading", "type": "x"}}
        self.page.route("**/health", lambda route: route.fulfill(status=503, json=body))
        self.page.reload()
        self.page.locator("#loading").wait_for()
        self.assertEqual(self.page.locator("#loading").get_attribute("aria-valuenow"), "42")
        self.assertEqual(self.page.locator("#model-name").inner_text(), "Loading the model")
        self.page.unroute("**/health")
        self.page.locator("#status-dot.ok").wait_for()
        self.assertTrue(self.page.locator("#loading").is_hidden())

    def test_theme_button_and_contrast(self):
        for theme in (self.scheme, "dark" if self.scheme == "light" else "light"):
            self.assertEqual(self.page.evaluate("document.documentElement.dataset.theme"), theme)
            self.assertEqual(self.page.evaluate(CONTRAST), [])
            self.page.locator("#theme").click()
        self.page.locator("#theme").click()
        self.page.reload()
        self.assertNotEqual(self.page.evaluate("document.documentElement.dataset.theme"), self.scheme)

    def test_narrow_screen_does_not_scroll_sideways(self):
        self.page.set_viewport_size({"width": 360, "height": 700})
        for tab in ("Chat", "Experts"):
            self.page.get_by_role("tab", name=tab).click()
            self.page.wait_for_timeout(300)
            self.assertLessEqual(self.page.evaluate("document.documentElement.scrollWidth"), 360)

    def test_every_control_has_a_name(self):
        for tab in ("Chat", "Experts"):
            self.page.get_by_role("tab", name=tab).click()
            nameless = self.page.evaluate("""() => [...document.querySelectorAll('button, input, textarea, [role=tab]')]
                .filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length))
                .map((e) => e.outerHTML)""")
            self.assertEqual(nameless, [])


# Pairs of text and background colours whose contrast is below 4.5, WCAG's AA.
CONTRAST = """() => {
  const value = (name) => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
  const luminance = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const pairs = [['accent-ink', 'accent'], ['danger', 'danger-soft'], ['ink', 'accent-soft'], ['bg', 'ink']];
  for (const back of ['bg', 'surface', 'raised', 'sunk']) pairs.push(['ink', back], ['muted', back]);
  return pairs.filter(([text, back]) => {
    const [a, b] = [luminance(value(text)), luminance(value(back))].sort((x, y) => y - x);
    return !((a + 0.05) / (b + 0.05) >= 4.5);
  });
}"""


class DarkPageTest(PageTest):
    scheme = "dark"


class KeyTest(PageTest):
    """A server that asks for a key; the tests of an open one do not apply."""

    options = ("--api-key", "secret-1")

    def test_key_is_asked_for_and_kept_for_the_tab(self):
        self.expected_problem = "401"
        page = self.page
        page.get_by_label("This server asks for an API key").fill("wrong")
        page.keyboard.press("Enter")
        page.get_by_label("This server asks for an API key").wait_for()
        page.get_by_label("This server asks for an API key").fill("secret-1")
        page.keyboard.press("Enter")
        page.locator("#status-dot.ok").wait_for()
        self.assertTrue(page.locator("#key-bar").is_hidden())
        self.settings(Max_tokens=6)
        self.send("Hello")
        page.locator(".foot span").first.wait_for()
        page.reload()
        page.locator("#status-dot.ok").wait_for()
        self.assertEqual(page.evaluate("sessionStorage.getItem('bellhop.key')"), "secret-1")
        self.assertFalse(page.evaluate("Object.values(localStorage).includes('secret-1')"))


def load_tests(loader, _tests, _pattern):
    suite = unittest.TestSuite(map(loader.loadTestsFromTestCase, (PageTest,)))
    # The dark page and the key need a few tests of their own, not all.
    for name in ("test_theme_button_and_contrast", "test_map_has_colours_and_hover_shows_figures"):
        suite.addTest(DarkPageTest(name))
    suite.addTest(KeyTest("test_key_is_asked_for_and_kept_for_the_tab"))
    return suite
