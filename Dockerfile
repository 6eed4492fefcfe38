# A node as an image: `docker build -t core-bridge .`, then
# docker run -p 127.0.0.1:61616:61616 -v core-bridge-data:/var/lib/core-bridge -v ./settings.toml:/etc/core-bridge/settings.toml core-bridge
# Settings that listen on 127.0.0.1 are reachable from inside the container only: listen on 0.0.0.0 there (which asks for
# tokens, or `insecure = true`). `data-directory = "data"` leads to the volume.

FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements/base.txt requirements/base.txt
RUN python -m venv /opt/core-bridge \
    && /opt/core-bridge/bin/pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes --requirement requirements/base.txt
# Readme and licence go into the package's metadata; the sample settings and the demo's data are links to these files.
COPY pyproject.toml README.md LICENSE settings.toml ./
COPY examples/departures-2013.jsonl examples/departures-2013.jsonl
COPY bridge bridge
COPY cluster cluster
COPY dedup dedup
RUN /opt/core-bridge/bin/pip install --no-cache-dir --disable-pip-version-check \
        --no-deps --no-build-isolation .

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /var/lib/core-bridge --create-home core-bridge
COPY --from=build /opt/core-bridge /opt/core-bridge
COPY settings.toml /etc/core-bridge/settings.toml
# "data", relative to that file, is the volume.
RUN ln -s /var/lib/core-bridge /etc/core-bridge/data
ENV PATH=/opt/core-bridge/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    CORE_BRIDGE_SETTINGS=/etc/core-bridge/settings.toml
USER core-bridge
WORKDIR /var/lib/core-bridge
VOLUME /var/lib/core-bridge
EXPOSE 61616 8161
STOPSIGNAL SIGTERM
# Asks /ping of the operations listener, wherever the settings have it; proxies of the environment are not used.
HEALTHCHECK --interval=30s --timeout=10s --start-period=10s --retries=3 CMD ["core-bridge", "ready", "--alive"]
ENTRYPOINT ["core-bridge"]
CMD ["run"]
