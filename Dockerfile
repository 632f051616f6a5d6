# The image: an interpreter, Steersman and what it needs, for any architecture that Python has wheels for.
# docker build -t steersman .
FROM python:3.13-slim AS build
WORKDIR /source
COPY . .
RUN pip install --quiet --no-cache-dir hatchling \
 && SOURCE_DATE_EPOCH=0 pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
 && python image/root.py /image --wheel /wheels/*.whl

FROM scratch
COPY --from=build /image /
USER 65532:65532
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONHOME=/usr SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
EXPOSE 8080
ENTRYPOINT ["/usr/bin/python3", "-m", "steersman"]
CMD ["run"]
