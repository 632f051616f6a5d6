# The image: an interpreter, Steersman and what it needs, for any architecture that Python has wheels for.
# docker build -t steersman .
#
# Reviewed, not run: there is no container engine where the tests run. They build the same root filesystem with the same
# script (tests/e2e/shipping/test_image.py). For a pinned base: --build-arg BASE=python:3.13-slim@sha256:…
ARG BASE=python:3.13-slim
FROM ${BASE} AS build
# The commit's time, so that the wheel in the image is the one that was released, byte by byte.
ARG SOURCE_DATE_EPOCH=0
WORKDIR /source
COPY . .
RUN pip install --quiet --no-cache-dir --require-hashes --requirement image/build.lock \
 && SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
 && python image/root.py /image --wheel /wheels/*.whl

FROM scratch
COPY --from=build /image /
USER 65532:65532
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONHOME=/usr SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
EXPOSE 8080
ENTRYPOINT ["/usr/bin/python3", "-m", "steersman"]
CMD ["run"]
