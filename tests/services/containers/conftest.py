"""The image, built once."""

import pytest

from tests.support.running.pods import built_image


@pytest.fixture(scope="session")
def image() -> str:
    return built_image()
