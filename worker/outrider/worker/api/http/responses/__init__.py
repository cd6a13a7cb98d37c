"""OpenAI's /v1/responses on the core of chats: a body becomes a chat's, and its answer items.

Nothing is kept between two requests. Leaves what a chat asks for to `from_openai` and what its
answer holds to `choice`.
"""
