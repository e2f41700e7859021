"""Pictures of the page for the manual."""

import json
import threading
import urllib.request
from pathlib import Path

import browser
from serve_process import Server

QUESTION = "Tell me a story about the sea."


def keep_busy(server, stop):
    """Traffic while the pictures are taken, so that the map has something to show."""
    prompts = ["In the beginning", "The captain looked at", "The function returns", "A lighthouse is"]
    count = 0
    while not stop.is_set():
        body = {"prompt": prompts[count % len(prompts)], "max_tokens": 150, "temperature": 0.8, "seed": count}
        call = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(),
                                      {"Content-Type": "application/json"})
        urllib.request.urlopen(call, timeout=60).read()
        count += 1


def take(page, server, folder, theme):
    page.goto(server.url + "/")
    page.locator("#status-dot.ok").wait_for()
    page.get_by_role("button", name="Settings", exact=True).click()
    page.get_by_label("Max tokens").fill("110")
    page.get_by_label("Seed").fill("5")
    page.get_by_label("Temperature").fill("0.7")
    page.get_by_role("button", name="Close settings").click()
    page.get_by_label("Message").fill(QUESTION)
    page.keyboard.press("Enter")
    page.locator(".foot span").first.wait_for()
    page.screenshot(path=folder / f"chat-{theme}.png")
    stop = threading.Event()
    busy = [threading.Thread(target=keep_busy, args=(server, stop)) for _ in range(2)]
    for thread in busy:
        thread.start()
    page.get_by_role("tab", name="Experts").click()
    page.wait_for_timeout(12000)
    page.locator("#map").hover(position={"x": 420, "y": 96})
    page.screenshot(path=folder / f"experts-{theme}.png")
    stop.set()
    for thread in busy:
        thread.join()


def write(folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    server = Server()
    try:
        with browser.chromium() as chromium:
            for theme in ("light", "dark"):
                context = chromium.new_context(viewport=browser.SIZE, color_scheme=theme)
                take(context.new_page(), server, folder, theme)
                context.close()
    finally:
        server.stop()
