// The REST API by its OpenAPI document, to try out; drawn by Swagger UI, which this service has at hand.

globalThis.SwaggerUIBundle({
  dom_id: "#reference",
  url: "/openapi.json",
  deepLinking: true,
  docExpansion: "list",
  // Nothing is sent anywhere else, so no document is validated by its makers' service.
  validatorUrl: null,
});
