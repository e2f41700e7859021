"""Headless Chromium on the server's page."""

import os
import shutil
from contextlib import contextmanager

from playwright.sync_api import sync_playwright

SIZE = {"width": 1280, "height": 800}


def find():
    for path in ("/usr/bin/chromium", shutil.which("chromium"), shutil.which("google-chrome")):
        if path and os.access(path, os.X_OK):
            return path
    return None


@contextmanager
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()
